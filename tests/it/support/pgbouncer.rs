//! A PgBouncer of a test's own, in transaction mode, in front of the shared Postgres.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Url;

use super::services::required;

/// How many connections to Postgres all clients share.
pub(crate) const SERVERS: i64 = 3;

/// PgBouncer refuses to run as root; every Linux has this user.
const USER: &str = "nobody";

/// A PgBouncer that runs until this is dropped.
pub(crate) struct PgBouncer {
    port: u16,
    child: Child,
    _dir: tempfile::TempDir,
}

impl PgBouncer {
    /// Starts one in front of the server of this URL.
    pub(crate) fn start(postgres: &str) -> Self {
        let server = Url::parse(postgres).unwrap();
        let password = server.password().map(|password| format!(" password={password}")).unwrap_or_default();
        let (host, user) = (server.host_str().unwrap(), server.username());
        let at = server.port().unwrap_or(5432);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "[databases]\n\
             * = host={host} port={at} user={user}{password}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = {SERVERS}\n\
             max_client_conn = 200\n"
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(required("ROUNDHOUSE_TEST_PGBOUNCER"));
        if nix::unistd::Uid::effective().is_root() {
            command.args(["-u", USER]);
        }
        let child = command.arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let bouncer = Self { port, child, _dir: dir };
        for _ in 0..1_000 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return bouncer;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("PgBouncer does not answer");
    }

    /// The address of the same database through it.
    pub(crate) fn url(&self, database: &str) -> String {
        let mut url = Url::parse(database).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.into()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
