//! Claude Code without a word of configuration.

use roundhouse_oracle::Oracle;
use serde_json::json;

use crate::support::{Client, Process, claude, nothing_runs_for, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claude_on_the_path_is_an_agent() {
    let (dir, oracle) = (tempfile::tempdir().unwrap(), Oracle::start().await.unwrap());
    let programs = dir.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(claude(), programs.join("claude")).unwrap();
    let env = [
        ("ROUNDHOUSE_LISTEN", "127.0.0.1:0".to_owned()),
        ("HOME", dir.path().display().to_string()),
        ("PATH", format!("{}:/usr/bin:/bin", programs.display())),
        ("ANTHROPIC_BASE_URL", oracle.base_url()),
        ("ANTHROPIC_API_KEY", "test".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    let mut process = Process::start("up", 1, dir.path(), &env);
    let client = Client::new(process.url().await);

    let agents = client.items("/agents").await;

    let named: Vec<_> = agents.iter().map(|agent| (text(&agent["name"]), &agent["available"])).collect();
    assert_eq!(named, [("claude".to_owned(), &json!(true)), ("demo".to_owned(), &json!(true))]);
    assert_eq!(agents[0]["engine"], "claude-cli");
    let answer = client.chat_with("claude", None, "say found").await.json();
    assert_eq!((&answer["content"], &answer["engine"]), (&json!("found"), &json!("claude-cli")));
    process.stop().await;
    nothing_runs_for(&text(&answer["sessionId"])).await;
    oracle.stop().await;
}
