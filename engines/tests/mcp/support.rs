//! A real server, calls of it, and looking at its processes.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use roundhouse_engines::mcp::{Server, Settings, Transport};
use roundhouse_engines::process::TOKEN_VARIABLE;
use roundhouse_engines::tools::{ToolContext, ToolOutcome, ToolSource};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::served::{everything, runs};

/// Longer than any test: what is to happen within it happens at once, and what after it never.
pub(crate) const NEVER: Duration = Duration::from_hours(10);

/// A program as a server.
pub(crate) fn command(program: &str, args: &[&str]) -> Settings {
    let transport = Transport::Command {
        program: program.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        cwd: "/".into(),
        environment: BTreeMap::from([("PLANET".to_owned(), "Saturn".into())]),
    };
    patient("every", transport)
}

/// Settings whose times play no part.
pub(crate) fn patient(name: &str, transport: Transport) -> Settings {
    let (connect_timeout, call_timeout, back_off) = (NEVER, NEVER, NEVER);
    Settings { connect_timeout, call_timeout, back_off, ..Settings::new(name, transport) }
}

/// The real server, over its standard streams.
pub(crate) fn real() -> Settings {
    command("node", &[&everything(), "stdio"])
}

pub(crate) fn server(settings: Settings) -> Server {
    Server::new(settings).unwrap()
}

/// The server over HTTP on this port.
pub(crate) fn at(port: u16) -> Server {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let headers = BTreeMap::from([("x-key".to_owned(), KEY.into())]);
    server(patient("every", Transport::Http { url, headers }))
}

/// What nobody but the server may get.
pub(crate) const KEY: &str = "the-key-of-the-server";

pub(crate) async fn call(server: &Server, tool: &str, input: Value) -> ToolOutcome {
    call_until(server, tool, input, CancellationToken::new()).await
}

pub(crate) async fn call_until(
    server: &Server,
    tool: &str,
    input: Value,
    cancel: CancellationToken,
) -> ToolOutcome {
    let (output, _shown) = mpsc::channel(16);
    let context = ToolContext { cwd: "/".into(), owner: None, output, cancel };
    server.call(tool, input, &context).await
}

/// Calls the server, which has to be there.
pub(crate) async fn echo(server: &Server, message: &str) {
    let outcome = call(server, "every__echo", json!({ "message": message })).await;
    assert_eq!(outcome, ToolOutcome::success(format!("Echo: {message}")));
}

/// The text of a call of a server that is not there.
pub(crate) async fn unavailable(server: &Server) -> String {
    let outcome = call(server, "every__echo", json!({ "message": "?" })).await;
    assert!(!outcome.success, "{outcome:?}");
    outcome.text
}

/// The environment that the server says it has.
pub(crate) async fn environment(server: &Server) -> BTreeMap<String, String> {
    let outcome = call(server, "every__get-env", json!({})).await;
    serde_json::from_str(&outcome.text).unwrap_or_else(|_| panic!("{outcome:?}"))
}

/// The processes that were started with the server's.
pub(crate) async fn processes(server: &Server) -> Vec<u32> {
    let mark = format!("{TOKEN_VARIABLE}={}", environment(server).await[TOKEN_VARIABLE]);
    let found: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        })
        .collect();
    assert!(!found.is_empty());
    found
}

/// Kills the server and waits until it is gone.
pub(crate) async fn kill(server: &Server) {
    let found = processes(server).await;
    for pid in &found {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    until_gone(&found).await;
}

pub(crate) async fn until_gone(pids: &[u32]) {
    while pids.iter().any(|pid| runs(*pid)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
