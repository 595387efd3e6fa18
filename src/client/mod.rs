//! The terminal client: a conversation over HTTP, like any other client's.

mod answers;
mod asking;
mod lines;
mod questions;
mod screen;
mod server;
mod tools;
mod turn;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use roundhouse_shared::domain::JobId;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::ChatArgs;
use crate::terminal::{self, chain, complain, harmless, remark};
use lines::Lines;
use questions::Questions;
use screen::Screen;
use server::{ClientError, Server};
use tools::Tools;
use turn::{Turn, TurnEnd};

/// The usual exit code of what was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Says the message, or those on standard input one after another, and prints the answers.
pub(crate) async fn chat(url: &str, args: ChatArgs) -> ExitCode {
    let prepared = Server::new(url).map_err(ClientError::from).and_then(|server| {
        let interrupts = signal(SignalKind::interrupt()).map_err(ClientError::Terminal)?;
        Ok(Chat { server, agent: args.agent, session: args.session, interrupts, lines: Lines::new() })
    });
    let mut chat = match prepared {
        Ok(chat) => chat,
        Err(error) => return failed(&error),
    };
    let code = match args.message {
        Some(message) => match chat.say(message).await {
            Ok(end) if end.cancelled => ExitCode::from(INTERRUPTED),
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        },
        None => chat.converse().await,
    };
    if let Some(session) = &chat.session {
        remark(&format!("session {}", harmless(session)));
    }
    code
}

/// Says what went wrong, if anybody listens.
fn failed(error: &ClientError) -> ExitCode {
    match error {
        ClientError::Interrupted => return ExitCode::from(INTERRUPTED),
        ClientError::Terminal(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        error => complain(&harmless(&chain(error)).replace('\n', " ")),
    }
    ExitCode::FAILURE
}

struct Chat {
    server: Server,
    agent: String,
    session: Option<String>,
    interrupts: Signal,
    lines: Lines,
}

impl Chat {
    /// One message and its answer.
    async fn say(&mut self, message: String) -> Result<TurnEnd, ClientError> {
        let mut screen = Screen::new(terminal::is_seen());
        let mut turn = Turn {
            server: &self.server,
            screen: &mut screen,
            interrupts: &mut self.interrupts,
            lines: &mut self.lines,
            // Where the connection breaks before the answer, saying it again must not say it twice.
            key: JobId::generate().to_string(),
            session: self.session.take(),
            job: None,
            answering: None,
            last_event: None,
            is_cancelling: false,
            owes_cancel: false,
            tools: Tools::default(),
            questions: Questions::default(),
            takes_answers: false,
        };
        let ended = turn.run(&self.agent, message).await;
        self.session = turn.session.take();
        let ended = ended?;
        if ended.cancelled {
            remark("cancelled");
        }
        Ok(ended)
    }

    /// Messages from standard input, until it ends.
    async fn converse(&mut self) -> ExitCode {
        let is_seen = io::stdin().is_terminal() && terminal::is_seen();
        loop {
            if is_seen && terminal::write("> ").is_err() {
                return ExitCode::FAILURE;
            }
            let line = tokio::select! {
                line = self.lines.message() => line,
                _ = self.interrupts.recv() => None,
            };
            let Some(line) = line else {
                if is_seen {
                    terminal::say("");
                }
                return ExitCode::SUCCESS;
            };
            if line.trim().is_empty() {
                continue;
            }
            if let Err(error) = self.say(line).await {
                let code = failed(&error);
                if !is_seen || matches!(error, ClientError::Interrupted | ClientError::Terminal(_)) {
                    return code;
                }
            }
        }
    }
}

fn member<'a>(data: &'a Value, name: &str) -> &'a str {
    data.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn text(data: &Value, name: &str) -> Option<String> {
    data.get(name).and_then(Value::as_str).map(str::to_owned)
}
