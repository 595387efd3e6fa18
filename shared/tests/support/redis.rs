//! The Redis that all cases share, and servers that a case may stop, empty and start again.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use redis::aio::MultiplexedConnection;
use roundhouse_shared::redis::Settings;
use tempfile::TempDir;
use uuid::Uuid;

use super::eventually;

const URL: &str = "ROUNDHOUSE_TEST_REDIS_URL";
const SERVER: &str = "ROUNDHOUSE_TEST_REDIS_SERVER";

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where Redis is")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The shared server, with names of the case's own.
pub(crate) fn shared() -> Settings {
    let url =
        variable(URL).unwrap_or_else(|| panic!("run `cargo xtask test`, or set {URL} to a Redis's URL"));
    Settings { url, prefix: format!("test-{}", Uuid::now_v7()) }
}

/// What a server still has after it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    Nothing,
    Everything,
}

/// Why a server refuses writes, while it answers reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no memory left.
    Full,
    /// It follows another server, which is not there.
    Replica,
    /// It cannot write down what it has.
    CannotSave,
}

impl Refusal {
    /// What the error says.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Full => "OOM",
            Self::Replica => "read only replica",
            Self::CannotSave => "MISCONF",
        }
    }
}

/// A server of one case's own, on one port for as long as the case lasts.
pub(crate) struct Server {
    port: u16,
    keeps: Keeps,
    process: Option<Child>,
    folder: TempDir,
}

impl Server {
    /// An address where a server may be started.
    pub(crate) fn absent(keeps: Keeps) -> Self {
        Self { port: free_port(), keeps, process: None, folder: tempfile::tempdir().unwrap() }
    }

    /// A server that answers.
    pub(crate) async fn running(keeps: Keeps) -> Self {
        let mut server = Self::absent(keeps);
        server.start().await;
        server
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { url: format!("redis://127.0.0.1:{}", self.port), ..Settings::default() }
    }

    /// Starts the server, and returns when it answers.
    pub(crate) async fn start(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        self.process = Some(self.spawn());
        eventually("the server answers", async || {
            // Where it could not have its port yet, it is tried again.
            if self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some()) {
                self.process = Some(self.spawn());
            }
            let Ok(mut connection) = self.try_connect().await else { return false };
            redis::cmd("PING").query_async::<()>(&mut connection).await.is_ok()
        })
        .await;
    }

    fn spawn(&self) -> Child {
        let program = variable(SERVER).unwrap_or_else(|| "redis-server".to_owned());
        let log = File::create(self.folder.path().join("log")).unwrap();
        let appending = if self.keeps == Keeps::Everything { "yes" } else { "no" };
        Command::new(&program)
            // Written before it is acknowledged; the default lets a write wait while the one before is synced.
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", appending, "--appendfsync", "always"])
            .args(["--port", &self.port.to_string()])
            .arg("--dir")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start ({SERVER} names another): {error}"))
    }

    /// Ends the server, without a chance to do anything about it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Lets the server refuse writes.
    pub(crate) async fn refuse(&self, refusal: Refusal) {
        match refusal {
            Refusal::Full => self.run(&["CONFIG", "SET", "maxmemory", "1"]).await,
            Refusal::Replica => self.run(&["REPLICAOF", "127.0.0.1", "1"]).await,
            Refusal::CannotSave => {
                // A folder has the name of the file to write.
                std::fs::create_dir(self.folder.path().join("dump.rdb")).unwrap();
                self.run(&["CONFIG", "SET", "save", "3600 1000000"]).await;
                self.run(&["BGSAVE"]).await;
                let mut connection = self.connect().await;
                eventually("the save to fail", async || {
                    let info: String =
                        redis::cmd("INFO").arg("persistence").query_async(&mut connection).await.unwrap();
                    info.contains("rdb_last_bgsave_status:err")
                })
                .await;
            }
        }
    }

    /// Lets the server take writes again.
    pub(crate) async fn accept(&self, refusal: Refusal) {
        match refusal {
            Refusal::Full => self.run(&["CONFIG", "SET", "maxmemory", "0"]).await,
            Refusal::Replica => self.run(&["REPLICAOF", "NO", "ONE"]).await,
            Refusal::CannotSave => self.run(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]).await,
        }
    }

    async fn run(&self, command: &[&str]) {
        let mut call = redis::cmd(command[0]);
        call.arg(&command[1..]);
        call.query_async::<redis::Value>(&mut self.connect().await).await.unwrap();
    }

    /// Lets the server stand still, with all its connections open.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// A connection of the case's own.
    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        self.try_connect().await.unwrap()
    }

    async fn try_connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        redis::Client::open(self.settings().url)?.get_multiplexed_async_connection().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How many connections a server has besides this one.
pub(crate) async fn connections(connection: &mut MultiplexedConnection) -> usize {
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(connection).await.unwrap();
    clients.lines().count() - 1
}

/// A port that nobody listens on. Not one of those that the system gives to outgoing connections: while the server is
/// down one of those could take it, even one that tries to reach it.
fn free_port() -> u16 {
    loop {
        let [.., high, low] = *Uuid::now_v7().as_bytes();
        let port = 16_384 | (u16::from_be_bytes([high, low]) >> 2);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
