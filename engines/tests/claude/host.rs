//! A host for the CLI: its folders, a model, and sessions on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roundhouse_engines::claude::transcript::Transcripts;
use roundhouse_engines::claude::{ClaudeCli, Settings};
use roundhouse_engines::contract::{
    Engine, EngineEvent, EngineSession, InputMessage, Native, OpenSession, TurnDone, TurnInput,
};
use roundhouse_engines::permissions::Permissions;
use roundhouse_oracle::{Oracle, Protocol, RecordedRequest};
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

/// Longer than anything here takes on the slowest machine: a test that waits for it has failed.
pub(crate) const TOO_LONG: Duration = Duration::from_mins(3);

/// A PNG file of one pixel.
pub(crate) const PIXEL: [u8; 70] = [
    137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 31,
    21, 196, 137, 0, 0, 0, 13, 73, 68, 65, 84, 120, 218, 99, 252, 207, 192, 240, 31, 0, 5, 5, 2, 0, 95, 200,
    241, 210, 0, 0, 0, 0, 73, 69, 78, 68, 174, 66, 96, 130,
];

pub(crate) struct Host {
    pub(crate) oracle: Oracle,
    folder: TempDir,
}

/// The real CLI.
pub(crate) fn claude() -> String {
    std::env::var_os("ROUNDHOUSE_TEST_CLAUDE")
        .and_then(|path| path.into_string().ok())
        .expect("ROUNDHOUSE_TEST_CLAUDE names the CLI; `cargo xtask claude` sets it")
}

impl Host {
    pub(crate) async fn new() -> Self {
        let host = Self { oracle: Oracle::start().await.unwrap(), folder: tempfile::tempdir().unwrap() };
        for folder in ["home", "config", "work"] {
            fs::create_dir(host.path(folder)).unwrap();
        }
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Settings with which the CLI talks to the oracle.
    pub(crate) fn settings(&self) -> Settings {
        let variables = [
            ("ANTHROPIC_API_KEY", "sk-test".to_owned()),
            ("ANTHROPIC_BASE_URL", self.oracle.base_url()),
            ("HOME", self.path("home").display().to_string()),
        ];
        let env = variables.map(|(name, value)| (name.to_owned(), value.into()));
        Settings {
            command: vec![claude()],
            config_dir: self.path("config"),
            model: Some("claude-opus-5-5".to_owned()),
            env: BTreeMap::from(env),
            ..Settings::default()
        }
    }

    pub(crate) async fn open(&self) -> Session {
        self.open_with(self.settings(), None).await
    }

    pub(crate) async fn resume(&self, native: &str) -> Session {
        self.open_with(self.settings(), Some(native)).await
    }

    pub(crate) async fn open_with(&self, settings: Settings, native: Option<&str>) -> Session {
        let session = ClaudeCli::new(settings).unwrap().open(self.spec(native)).await.unwrap();
        Session(session)
    }

    pub(crate) async fn open_spec(&self, spec: OpenSession) -> Session {
        Session(ClaudeCli::new(self.settings()).unwrap().open(spec).await.unwrap())
    }

    pub(crate) fn spec(&self, native: Option<&str>) -> OpenSession {
        OpenSession {
            session: Uuid::now_v7().to_string(),
            native_session: native.map(str::to_owned),
            anchor: None,
            model: None,
            cwd: self.path("work"),
            owner: None,
            above: Vec::new(),
        }
    }

    /// Waits until the transcript has a call of a tool: the CLI writes it a moment after it runs the tool, and a process that is
    /// killed before leaves no trace of the call.
    pub(crate) async fn has_kept_a_call(&self, native: &str) {
        self.has_kept(native, |line| line.contains("\"tool_use\"")).await;
    }

    /// Waits until the transcript has a line that is such.
    pub(crate) async fn has_kept(&self, native: &str, is_such: impl Fn(&str) -> bool) {
        let native = Native { id: native.to_owned(), cwd: self.path("work") };
        let transcript = Transcripts::new(self.path("config")).path(&native);
        let kept = async {
            while !fs::read_to_string(&transcript).is_ok_and(|text| text.lines().any(&is_such)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TOO_LONG, kept).await.expect("a line in the transcript");
    }

    /// What the model was asked, oldest first.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.oracle.requests().into_iter().filter(|request| request.protocol == Protocol::Messages).collect()
    }

    /// The texts of the last user message that the model got.
    pub(crate) fn last_heard(&self) -> String {
        let request = self.requests().last().unwrap().json();
        let messages = request["messages"].as_array().unwrap();
        let last = messages.iter().rev().find(|message| message["role"] == "user").unwrap();
        last["content"].to_string()
    }
}

pub(crate) fn permissions(rules: Value) -> Permissions {
    serde_json::from_value(rules).unwrap()
}

pub(crate) fn message(text: &str) -> InputMessage {
    InputMessage { id: Uuid::now_v7().to_string(), text: text.to_owned(), attachments: vec![] }
}

pub(crate) fn input(text: &str) -> TurnInput {
    TurnInput { context: vec![], messages: vec![message(text)], earlier: None }
}

/// A session, and what is read of it.
pub(crate) struct Session(pub(crate) Box<dyn EngineSession>);

impl Session {
    pub(crate) fn native(&self) -> String {
        self.0.native_session().unwrap().to_owned()
    }

    pub(crate) async fn send(&mut self, text: &str) -> InputMessage {
        let input = input(text);
        let message = input.messages[0].clone();
        self.0.send(input).await.unwrap();
        message
    }

    pub(crate) async fn next(&mut self) -> EngineEvent {
        tokio::time::timeout(TOO_LONG, self.0.next()).await.expect("an event in time")
    }

    /// The events up to the one that is wanted, with it.
    pub(crate) async fn until(&mut self, is_wanted: impl Fn(&EngineEvent) -> bool) -> Vec<EngineEvent> {
        let mut events = vec![];
        loop {
            let event = self.next().await;
            let (is_wanted, ends) = (is_wanted(&event), event.ends_turn());
            events.push(event);
            if is_wanted {
                return events;
            }
            assert!(!ends, "the turn has ended before what was waited for: {events:#?}");
        }
    }

    /// The rest of the turn.
    pub(crate) async fn rest(&mut self) -> Vec<EngineEvent> {
        self.until(EngineEvent::ends_turn).await
    }

    /// A turn that is answered.
    pub(crate) async fn chat(&mut self, text: &str) -> String {
        self.send(text).await;
        answer(&self.rest().await)
    }

    /// Reads on until a tool sleeps [`forever`]; gives what was told meanwhile.
    pub(crate) async fn until_asleep(&mut self) -> Vec<EngineEvent> {
        let mut events = vec![];
        let asleep = async {
            while !is_asleep() {
                // Nothing tells when the shell has started.
                let event = tokio::time::timeout(Duration::from_millis(50), self.0.next()).await;
                events.extend(event);
            }
        };
        tokio::time::timeout(TOO_LONG, asleep).await.expect("a tool that sleeps");
        events
    }

    pub(crate) async fn close(self) {
        self.0.close(Duration::from_secs(20)).await;
    }
}

/// The answer of a turn that has ended well.
pub(crate) fn answer(events: &[EngineEvent]) -> String {
    done(events);
    let mut messages = events.iter().filter_map(|event| match event {
        EngineEvent::MessageDone(message) => Some(message),
        _ => None,
    });
    let last = messages.next_back().expect("a message");
    assert!(last.tool_calls.is_empty(), "a message with calls is no answer: {last:?}");
    last.content.clone()
}

pub(crate) fn done(events: &[EngineEvent]) -> TurnDone {
    match events.last() {
        Some(EngineEvent::TurnDone(done)) => done.clone(),
        other => panic!("the turn has not ended well: {other:?}"),
    }
}

pub(crate) fn deltas(events: &[EngineEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        EngineEvent::Delta(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

/// For how many seconds a tool sleeps that never wakes up: a number that no other test has.
pub(crate) fn forever() -> u32 {
    100_000 + std::process::id()
}

/// Whether a tool sleeps [`forever`].
pub(crate) fn is_asleep() -> bool {
    is_running(&format!("sleep {}", forever()))
}

/// Waits until no tool sleeps [`forever`] any more. A killed process is there until the kernel has ended it, which takes a moment
/// on a busy machine.
pub(crate) async fn until_none_asleep() {
    let ended = async {
        while is_asleep() {
            // Nothing tells when somebody else's process has ended.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TOO_LONG, ended).await.expect("the end of a tool that was killed");
}

/// Whether a process with this in its command line is there.
pub(crate) fn is_running(words: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(words))
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}
