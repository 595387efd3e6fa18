//! The terminal client, with somebody at a terminal of its own or with pipes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::{Client, SOON, soon};

/// `roundhouse chat`, as it runs. Killed with this, if it still does.
pub(crate) struct Talk {
    child: Child,
    /// What is typed, or written to it; `None`: there is nothing more.
    input: Option<File>,
    /// What the terminal shows; standard error, where there is none.
    seen: Reading,
    /// Standard output, where the terminal does not show it.
    out: Option<Reading>,
    /// How much of what the terminal shows was looked at.
    at: usize,
}

/// A stream that is read to its end.
struct Reading {
    text: watch::Receiver<String>,
    thread: Option<JoinHandle<()>>,
}

impl Talk {
    /// At a terminal, which shows everything.
    pub(crate) fn at_terminal(client: &Client, args: &[&str]) -> Self {
        let (terminal, end) = terminal();
        let end = || Stdio::from(end.try_clone().unwrap());
        let child = command(client, args).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self::of(child, Some(terminal.try_clone().unwrap()), Reading::begin(terminal))
    }

    /// At a terminal, with standard output elsewhere.
    pub(crate) fn redirected(client: &Client, args: &[&str]) -> Self {
        let (terminal, end) = terminal();
        let end = || Stdio::from(end.try_clone().unwrap());
        let child = command(client, args).stdin(end()).stdout(Stdio::piped()).stderr(end()).spawn().unwrap();
        Self::of(child, Some(terminal.try_clone().unwrap()), Reading::begin(terminal))
    }

    /// With no terminal at all, and with these lines on standard input.
    pub(crate) fn piped(client: &Client, args: &[&str], lines: &str) -> Self {
        let mut command = command(client, args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let err = child.stderr.take().unwrap();
        Self::of(child, None, Reading::begin(File::from(OwnedFd::from(err))))
    }

    fn of(mut child: Child, input: Option<File>, seen: Reading) -> Self {
        let out = child.stdout.take().map(|out| Reading::begin(File::from(OwnedFd::from(out))));
        Self { child, input, seen, out, at: 0 }
    }

    /// Types a line.
    pub(crate) fn types(&mut self, line: &str) {
        self.presses(&format!("{line}\n"));
    }

    /// Ends the input, as a person does with Ctrl-D.
    pub(crate) fn ends_input(&mut self) {
        self.presses("\x04");
    }

    fn presses(&mut self, keys: &str) {
        self.input.as_mut().expect("a terminal").write_all(keys.as_bytes()).unwrap();
    }

    /// Interrupts it, as a terminal does at Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGINT).unwrap();
    }

    /// Waits until this is shown behind what was looked at; returns what came before it.
    pub(crate) async fn shows(&mut self, what: &str) -> String {
        let at = self.at;
        let came = {
            let wanted = self.seen.text.wait_for(|text| text[at..].contains(what));
            tokio::time::timeout(SOON, wanted).await.ok().and_then(|text| Some(text.ok()?.clone()))
        };
        let text = came.unwrap_or_else(|| panic!("{what:?} does not come: {:?}", self.seen.text.borrow()));
        let found = at + text[at..].find(what).unwrap();
        self.at = found + what.len();
        text[at..found].to_owned()
    }

    /// Waits for its end; returns how it ended, what standard output had, and what is shown behind what was looked at.
    pub(crate) async fn ended(mut self) -> (ExitStatus, String, String) {
        let seen = self.seen.end().await;
        let out = match &mut self.out {
            Some(out) => out.end().await,
            None => String::new(),
        };
        let status = self.child.wait().unwrap();
        (status, out, seen[self.at..].to_owned())
    }
}

impl Reading {
    fn begin(mut from: File) -> Self {
        let (sender, text) = watch::channel(String::new());
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            // A terminal that nobody writes to any more is no file with an end but an error.
            while let Ok(n @ 1..) = from.read(&mut piece) {
                bytes.extend_from_slice(&piece[..n]);
                // A character of which only a part is there comes with the rest.
                if let Ok(text) = std::str::from_utf8(&bytes) {
                    sender.send_replace(text.to_owned());
                }
            }
        });
        Self { text, thread: Some(thread) }
    }

    /// All of it, once nobody writes any more.
    async fn end(&mut self) -> String {
        soon("a stream to end", async { while self.text.changed().await.is_ok() {} }).await;
        self.text.borrow().clone()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reading in [Some(&mut self.seen), self.out.as_mut()].into_iter().flatten() {
            if let Some(thread) = reading.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

/// A terminal: the side of the person, and the side of the program.
fn terminal() -> (File, OwnedFd) {
    let both = openpty(None, None).unwrap();
    // Copies are closed in what is started here; what `openpty` gives is not.
    (File::from(both.master.try_clone().unwrap()), both.slave.try_clone().unwrap())
}

fn command(client: &Client, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundhouse"));
    command.env_clear().arg("chat").args(["--url", &client.url]).args(args);
    command
}

/// A way to a server that can be cut.
pub(crate) struct Relay {
    pub(crate) client: Client,
    cut: watch::Sender<()>,
    _task: AbortOnDropHandle<()>,
}

impl Relay {
    pub(crate) async fn to(client: &Client) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = client.url.trim_start_matches("http://").to_owned();
        let cut = watch::Sender::new(());
        let cuts = cut.clone();
        #[expect(clippy::disallowed_methods, reason = "owned by the handle")]
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let (server, mut cut) = (server.clone(), cuts.subscribe());
                connections.spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { client: Client::new(url), cut, _task: AbortOnDropHandle::new(task) }
    }

    /// Breaks the connections that there are.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(());
    }
}
