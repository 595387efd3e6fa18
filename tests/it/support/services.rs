//! The databases and Redis servers that deployments use.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

#[expect(clippy::disallowed_methods, reason = "the test command tells by variables what it has started")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(super) fn required(name: &str) -> String {
    variable(name).unwrap_or_else(|| {
        panic!("{name} is not set: run the tests by `cargo xtask test`, or set it to a server of your own")
    })
}

/// The address of the shared Redis; tests keep apart by the prefix of their keys.
pub(crate) fn redis_url() -> String {
    required("ROUNDHOUSE_TEST_REDIS_URL")
}

/// The Claude Code that the tests run.
pub(crate) fn claude() -> String {
    required("ROUNDHOUSE_TEST_CLAUDE")
}

/// A database of its own on the shared Postgres, gone with this.
pub(crate) struct Database {
    name: String,
    base: String,
}

impl Database {
    pub(crate) async fn create() -> Self {
        let base = required("ROUNDHOUSE_TEST_POSTGRES_URL");
        let name = format!("it_{}", uuid::Uuid::now_v7().simple());
        let mut connection = PgConnection::connect(&base).await.expect("Postgres answers");
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut connection)
            .await
            .unwrap();
        Self { name, base }
    }

    pub(crate) fn url(&self) -> String {
        let (server, _) = self.base.rsplit_once('/').expect("a URL with a database");
        format!("{server}/{}", self.name)
    }

    /// A connection to it, to look and to get in the way.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// Breaks all connections to it; returns how many there were.
    pub(crate) async fn break_connections(&self) -> usize {
        let mut connection = PgConnection::connect(&self.base).await.unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
        sqlx::query(sql).bind(&self.name).fetch_all(&mut connection).await.unwrap().len()
    }

    pub(crate) async fn drop(self) {
        let mut connection = PgConnection::connect(&self.base).await.unwrap();
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
}

/// A Redis server of its own, for tests that take it away.
pub(crate) struct RedisServer {
    port: u16,
    child: Option<Child>,
    dir: tempfile::TempDir,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { port, child: None, dir: tempfile::tempdir().unwrap() };
        server.again();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Starts it again on the same port, empty.
    pub(crate) fn again(&mut self) {
        let binary = variable("ROUNDHOUSE_TEST_REDIS_SERVER").unwrap_or_else(|| "redis-server".to_owned());
        let child = Command::new(PathBuf::from(binary))
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .current_dir(self.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        self.child = Some(child);
        for _ in 0..1_000 {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer");
    }

    /// Takes it away without a word.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Lets it stand still, with all its connections open.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Empties it.
    pub(crate) async fn flush(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
