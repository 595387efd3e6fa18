//! Where a transcript is: `projects/<folder>/<session>.jsonl` below the configuration folder.

use std::fs;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::contract::Native;

/// The folder for the CLI's temporary files, below the configuration folder.
pub(in crate::claude) const TEMPORARY: &str = "tmp";

/// A longer name of a project's folder is cut and gets a hash. In UTF-16 units.
const MAX_NAME: usize = 200;

/// Where the transcript of a session is that is started, or written by us, in its working directory. `None`: what is
/// no UUID is no session's id, and must not become part of a path.
pub(super) fn expected(config: &Path, native: &Native) -> Option<PathBuf> {
    Uuid::parse_str(&native.id).ok()?;
    let cwd = real(&native.cwd);
    let folder = config.join("projects").join(project(&cwd.to_string_lossy()));
    Some(folder.join(format!("{}.jsonl", native.id)))
}

/// Where the transcript is: in its working directory's project, else in any. The CLI resumes it from there.
pub(super) fn existing(config: &Path, native: &Native) -> Option<PathBuf> {
    let expected = expected(config, native)?;
    if expected.is_file() {
        return Some(expected);
    }
    let name = expected.file_name()?;
    let folders = fs::read_dir(config.join("projects")).ok()?;
    let mut found: Vec<_> = folders.flatten().map(|folder| folder.path().join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.into_iter().next()
}

/// Where the CLI keeps the output of a session's background commands: `<user>/<project>/<session>` below [`TEMPORARY`].
pub(super) fn outputs(config: &Path, transcript: &Path) -> Vec<PathBuf> {
    let project = transcript.parent().and_then(Path::file_name);
    let Some((project, session)) = project.zip(transcript.file_stem()) else { return Vec::new() };
    let users = fs::read_dir(config.join(TEMPORARY)).into_iter().flatten().flatten();
    users.map(|user| user.path().join(project).join(session)).filter(|folder| folder.is_dir()).collect()
}

/// The path without links; of what is not there, the absolute path.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// The name of the folder for the sessions of a working directory.
fn project(cwd: &str) -> String {
    let plain =
        |unit: u16| char::from_u32(u32::from(unit)).filter(char::is_ascii_alphanumeric).unwrap_or('-');
    let name: String = cwd.encode_utf16().map(plain).collect();
    if name.len() <= MAX_NAME {
        return name;
    }
    let hash =
        cwd.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    format!("{}-{}", &name[..MAX_NAME], base36(hash.unsigned_abs()))
}

fn base36(mut number: u32) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(number % 36, 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_named_after_its_directory() {
        assert_eq!(project("/tmp/a.b_c/é😀"), "-tmp-a-b-c----");
        assert_eq!(project(&"x".repeat(200)), "x".repeat(200));
    }

    #[test]
    fn hashes_are_written_in_base_36() {
        for (number, text) in [(0, "0"), (35, "z"), (36, "10"), (i32::MIN.unsigned_abs(), "zik0zk")] {
            assert_eq!(base36(number), text);
        }
    }
}
