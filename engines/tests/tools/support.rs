//! A workspace with tools, and looking at processes.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_engines::tools::{self, Builtins, Settings, ToolContext, ToolOutcome, ToolSource};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) fn builtins() -> Builtins {
    let names: Vec<String> = tools::names().into_iter().map(str::to_owned).collect();
    Builtins::new(&names, Settings::default()).unwrap()
}

/// A workspace in a directory that has other things too.
pub(crate) struct Workspace {
    /// The directory around it.
    pub(crate) around: TempDir,
    pub(crate) path: PathBuf,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("workspace");
        fs::create_dir(&path).unwrap();
        fs::write(around.path().join("secret"), "secret\n").unwrap();
        Self { around, path }
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path.join(path)).unwrap()
    }

    /// A context, and what is shown of the output.
    pub(crate) fn context(&self) -> (ToolContext, mpsc::Receiver<String>) {
        let (output, shown) = mpsc::channel(1_000);
        let cancel = CancellationToken::new();
        (ToolContext { cwd: self.path.clone(), owner: None, output, cancel }, shown)
    }

    pub(crate) async fn call(&self, tool: &str, input: Value) -> ToolOutcome {
        let (context, _shown) = self.context();
        builtins().call(tool, input, &context).await
    }

    /// The text of a call that does what it is asked to do.
    pub(crate) async fn done(&self, tool: &str, input: Value) -> String {
        let outcome = self.call(tool, input.clone()).await;
        assert!(outcome.success, "{tool} {input}: {}", outcome.text);
        outcome.text
    }

    /// The text of a call that does not.
    pub(crate) async fn refused(&self, tool: &str, input: Value) -> String {
        let outcome = self.call(tool, input.clone()).await;
        assert!(!outcome.success, "{tool} {input}: {}", outcome.text);
        outcome.text
    }
}

/// Whether a process runs. One that has ended and that nobody has reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
    !matches!(state, Some('Z' | 'X'))
}

/// The fields of `/proc/PID/stat` from the third on.
pub(crate) fn stat(text: &str) -> Vec<String> {
    text.rsplit(')').next().unwrap().split_ascii_whitespace().map(str::to_owned).collect()
}

/// All numbers in a text.
pub(crate) fn pids(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

pub(crate) async fn until_gone(pids: &[u32]) {
    until("processes to end", || !pids.iter().any(|pid| runs(*pid))).await;
}
