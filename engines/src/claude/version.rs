//! Which releases of the CLI are good enough.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::contract::EngineError;
use crate::process::{Process, Spec};

/// The oldest release that does what we rely on: older ones cannot join results to messages, and put any file into the
/// context that a message names.
pub(super) const OLDEST: Version = Version([2, 1, 332]);

/// How long the CLI may take to tell its version.
const PATIENCE: Duration = Duration::from_mins(1);

/// The most that is read of its answer.
const ANSWER_BYTES: u64 = 4096;

/// Three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version([u32; 3]);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Version {
    /// Reads `2.1.332 (Claude Code)`.
    fn read(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        let mut numbers = word.split(['.', '-', '+']).map(|number| number.parse().ok());
        Some(Self([numbers.next()??, numbers.next()??, numbers.next()??]))
    }
}

/// Whether a CLI is there and new enough.
///
/// # Errors
/// [`EngineError::Unavailable`] with the reason, which names both versions where it is too old.
pub(super) async fn check(program: &OsString, args: &[OsString], cwd: &Path) -> Result<(), EngineError> {
    let unavailable = |reason: String| EngineError::Unavailable(reason);
    let name = program.display();
    let mut spec = Spec::new(program, cwd);
    spec.args = args.iter().cloned().chain(["--version".into()]).collect();
    let mut process = Process::spawn(spec).map_err(|error| unavailable(format!("Claude Code: {error}")))?;
    let mut answer = String::new();
    let told = async {
        if let Some(output) = process.take_output() {
            // What is no text is no version.
            let _ = output.take(ANSWER_BYTES).read_to_string(&mut answer).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, told).await.is_ok();
    process.end(Duration::ZERO).await;
    if !in_time {
        return Err(unavailable(format!("`{name} --version` has not answered within {PATIENCE:?}")));
    }
    match Version::read(&answer) {
        None => Err(unavailable(format!(
            "`{name} --version` has not told a version: {:?} {}",
            answer.trim(),
            process.stderr_tail().trim()
        ))),
        Some(found) if found < OLDEST => {
            Err(unavailable(format!("Claude Code {found} is too old, {OLDEST} or newer is needed")))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let read = |text| Version::read(text);
        assert_eq!(read("2.1.332 (Claude Code)\n"), Some(OLDEST));
        assert!(read("2.1.197 (Claude Code)") < Some(OLDEST));
        assert!(read("2.2.0-beta.1 (Claude Code)") > Some(OLDEST));
        assert!(read("10.0.1") > Some(OLDEST));
        for odd in ["", "claude", "2.1", "2.x.3"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
