//! The real server over streamable HTTP. Shared by the engine's tests and those of the whole program.

use std::net::TcpListener;
use std::time::Duration;

use roundhouse_engines::process::{Environment, Process, Spec};

/// The main file of the server.
pub(crate) fn everything() -> String {
    let path = std::env::var_os("ROUNDHOUSE_TEST_MCP_EVERYTHING")
        .expect("ROUNDHOUSE_TEST_MCP_EVERYTHING is not set: run the tests with `cargo xtask test`, or below `cargo xtask services --`");
    path.into_string().unwrap()
}

/// Starts the real server on this port or a free one; a port that was free may be taken when it starts.
pub(crate) async fn start(port: Option<u16>) -> (Process, u16) {
    start_script(&[&everything(), "streamableHttp"], port).await
}

/// Starts a program of node that takes its port from `PORT` and says on its standard error when it listens.
pub(crate) async fn start_script(args: &[&str], port: Option<u16>) -> (Process, u16) {
    loop {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let chosen = port.unwrap_or_else(free);
        let set = vec![("PORT".into(), chosen.to_string().into())];
        let mut process = Process::spawn(Spec {
            args: args.iter().map(Into::into).collect(),
            environment: Environment { pass: Vec::new(), set },
            ..Spec::new("node", "/")
        })
        .unwrap();
        loop {
            if process.stderr_tail().contains("listening on port") {
                // Nobody reads its output, which is a few lines and fits into the pipe.
                return (process, chosen);
            }
            if process.has_exited() {
                assert!(process.stderr_tail().contains("already in use"), "{}", process.stderr_tail());
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Whether a process runs. One whose threads have all ended and that nobody has reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().unwrap().trim_start().chars().next();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !matches!(state, Some('Z' | 'X')) || threads > 1
}
