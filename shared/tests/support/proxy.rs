//! A TCP proxy that a test puts between a process and its Postgres or Redis, to break the connection at a chosen moment.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes forwarded at once.
const CHUNK: usize = 16 << 10;

/// Forwards every connection to a target. Stops with its connections when dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    target: Mutex<String>,
    refusing: Mutex<bool>,
    rule: Mutex<Option<Rule>>,
    /// Changes when all connections are to end.
    cuts: watch::Sender<u64>,
    /// How many times the rule has cut a connection.
    lost: watch::Sender<u64>,
}

/// Loses one reply: on the first connection whose client has sent `mark`, the reply to the next bytes that contain `at`.
#[derive(Clone)]
struct Rule {
    mark: Vec<u8>,
    at: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// A proxy on a free port of this host that forwards to `target`, a `host:port`.
    pub(crate) async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target.to_owned()),
            refusing: Mutex::new(false),
            rule: Mutex::default(),
            cuts: watch::Sender::new(0),
            lost: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Self { address, shared, _tasks: tasks }
    }

    /// Where clients connect to instead of the target.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL with this proxy in the place of its host and port: `postgres://user@host:port/db`, `redis://host:port/`.
    pub(crate) fn url(&self, url: &str) -> String {
        let target = target_of(url);
        url.replacen(&target, &self.address.to_string(), 1)
    }

    /// Sends connections that are made from now on somewhere else.
    pub(crate) fn retarget(&self, target: &str) {
        target.clone_into(&mut lock(&self.shared.target));
    }

    /// Ends all connections, at both ends, in the middle of whatever they carry.
    pub(crate) fn cut_all(&self) {
        self.shared.cuts.send_modify(|n| *n += 1);
    }

    /// Closes connections as soon as they are made, or forwards them again. Those that there are stay.
    pub(crate) fn refuse(&self, refuse: bool) {
        *lock(&self.shared.refusing) = refuse;
    }

    /// Loses one reply: on the first connection whose client has sent `mark` (empty: any connection), the next bytes that
    /// contain `at` are forwarded, the server's reply to them is dropped, and the connection is cut.
    pub(crate) fn lose_reply(&self, mark: &[u8], at: &[u8]) {
        *lock(&self.shared.rule) = Some(Rule { mark: mark.to_vec(), at: at.to_vec() });
    }

    /// Waits until so many replies were lost in all.
    pub(crate) async fn lost(&self, replies: u64) {
        let mut lost = self.shared.lost.subscribe();
        // The sender lives as long as this.
        let _ = lost.wait_for(|n| replies <= *n).await;
    }
}

/// The `host:port` of a URL.
pub(crate) fn target_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // All of them end with this task.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if !*lock(&shared.refusing) {
            connections.spawn(forward(client, shared.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let target = lock(&shared.target).clone();
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = client.set_nodelay(true).and(server.set_nodelay(true));
    let ((client_read, client_write), (server_read, server_write)) =
        (client.into_split(), server.into_split());
    let losing = watch::Sender::new(false);
    let answers = losing.subscribe();
    tokio::select! {
        _ = cuts.changed() => {}
        () = requests(client_read, server_write, &shared, &losing) => {}
        () = replies(server_read, client_write, answers) => {
            if *losing.borrow() {
                shared.lost.send_modify(|n| *n += 1);
            }
        }
    }
}

/// Forwards what the client sends, and says when its reply is to be lost.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    losing: &watch::Sender<bool>,
) {
    let mut chunk = vec![0; CHUNK];
    // What was sent lately, since a chunk can end anywhere.
    let (mut recent, mut marked) = (Vec::new(), false);
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else { return };
        recent.extend_from_slice(&chunk[..read]);
        let armed = lock(&shared.rule).clone();
        if let Some(rule) = armed {
            marked = marked || contains(&recent, &rule.mark).is_some();
            // The mark itself may come in the same chunk as what follows it.
            let after = contains(&recent, &rule.mark).unwrap_or(0);
            if marked && contains(&recent[after..], &rule.at).is_some() {
                *lock(&shared.rule) = None;
                losing.send_replace(true);
            }
            let most = rule.mark.len().max(rule.at.len()).max(64);
            if !recent.is_empty() && most < recent.len() {
                recent.drain(..recent.len() - most);
            }
        } else {
            (marked, recent) = (false, Vec::new());
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
        if *losing.borrow() {
            // The reply ends the connection.
            std::future::pending::<()>().await;
        }
    }
}

/// Where a pattern ends in these bytes. An empty one is anywhere.
fn contains(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    if pattern.is_empty() {
        return Some(0);
    }
    bytes.windows(pattern.len()).position(|window| window == pattern).map(|at| at + pattern.len())
}

/// Forwards what the server answers, until a reply that is to be lost.
async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, losing: watch::Receiver<bool>) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let Ok(read @ 1..) = from.read(&mut chunk).await else { return };
        if *losing.borrow() || to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

/// That it does what the cases rely on; each suite that has it uses only some of its commands.
mod tests {
    use super::*;

    /// A server that answers every line with its name in front.
    async fn echo(name: &'static str, tasks: &mut JoinSet<()>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut chunk = [0; 100];
                    while let Ok(read @ 1..) = client.read(&mut chunk).await {
                        let answer = [name.as_bytes(), b" ", &chunk[..read]].concat();
                        client.write_all(&answer).await.unwrap();
                    }
                });
            }
        });
        address
    }

    /// The answer to a line; nothing where the connection ended instead.
    async fn ask(client: &mut TcpStream, line: &str) -> String {
        let mut chunk = [0; 100];
        if client.write_all(line.as_bytes()).await.is_err() {
            return String::new();
        }
        let read = client.read(&mut chunk).await.unwrap_or(0);
        String::from_utf8_lossy(&chunk[..read]).into_owned()
    }

    #[tokio::test]
    async fn a_proxy_breaks_connections_when_it_is_told() {
        let mut tasks = JoinSet::new();
        let (one, two) = (echo("one", &mut tasks).await, echo("two", &mut tasks).await);
        let proxy = Proxy::to(&one).await;
        assert_eq!(target_of(&proxy.url(&format!("redis://me@{one}/0"))), proxy.address().to_string());
        let connect = async || TcpStream::connect(proxy.address()).await.unwrap();
        let (mut first, mut second) = (connect().await, connect().await);
        assert_eq!(ask(&mut first, "a").await, "one a");
        assert_eq!(ask(&mut second, "b").await, "one b");

        proxy.lose_reply(b"mark", b"commit");
        assert_eq!(ask(&mut first, "commit").await, "one commit");
        assert_eq!(ask(&mut second, "a ma").await, "one a ma");
        assert_eq!(ask(&mut second, "rk").await, "one rk");
        assert_eq!(ask(&mut second, "now commit").await, "");
        proxy.lost(1).await;
        assert_eq!(ask(&mut first, "mark commit").await, "one mark commit");

        proxy.retarget(&two);
        assert_eq!(ask(&mut first, "still").await, "one still");
        proxy.cut_all();
        assert_eq!(ask(&mut first, "c").await, "");
        assert_eq!(ask(&mut connect().await, "d").await, "two d");
        proxy.refuse(true);
        assert_eq!(ask(&mut connect().await, "e").await, "");
    }
}
