//! Runs turns and shows what came of them, one line an event.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_engines::contract::{
    Engine, EngineEvent, EngineSession, InputMessage, OpenSession, TurnInput, Usage,
};
use roundhouse_engines::openai::{OpenAi, Settings};

/// Longer than anything here takes: a test that waits for it has failed.
const TOO_LONG: Duration = Duration::from_mins(1);

/// Settings with which nothing takes long.
pub(crate) fn settings(base_url: &str) -> Settings {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Settings {
        base_url: base_url.to_owned(),
        model: "m".to_owned(),
        retry_delay: Duration::from_millis(1),
        max_retry_delay: Duration::from_millis(5),
        ..Settings::default()
    }
}

pub(crate) fn engine(settings: Settings) -> OpenAi {
    OpenAi::new(settings).unwrap()
}

pub(crate) async fn open(engine: &OpenAi) -> Box<dyn EngineSession> {
    let spec =
        OpenSession { session: "s".to_owned(), native_session: None, model: None, cwd: PathBuf::from("/") };
    engine.open(spec).await.unwrap()
}

pub(crate) fn input(texts: &[&str]) -> TurnInput {
    let message =
        |(index, text): (usize, &&str)| InputMessage { id: format!("job-{index}"), text: (*text).to_owned() };
    TurnInput { history: vec![], messages: texts.iter().enumerate().map(message).collect() }
}

pub(crate) async fn next(session: &mut dyn EngineSession) -> EngineEvent {
    tokio::time::timeout(TOO_LONG, session.next()).await.expect("an event in time")
}

/// The rest of the running turn.
pub(crate) async fn rest(session: &mut dyn EngineSession) -> Vec<String> {
    let mut shown = vec![];
    loop {
        let event = next(session).await;
        shown.push(show(&event));
        if event.ends_turn() {
            return shown;
        }
    }
}

/// One turn of a new session.
pub(crate) async fn turn(settings: Settings) -> Vec<String> {
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input(&["hello"])).await.unwrap();
    rest(&mut *session).await
}

pub(crate) fn show(event: &EngineEvent) -> String {
    match event {
        EngineEvent::Delta(text) => format!("delta {text}"),
        EngineEvent::ThinkingDelta(text) => format!("thinking {text}"),
        EngineEvent::Retry { attempt, status, .. } => match status {
            Some(status) => format!("retry after try {attempt}: {status}"),
            None => format!("retry after try {attempt}"),
        },
        EngineEvent::MessageDone(message) => {
            let mut shown = format!("message {:?}", message.content);
            if let Some(thinking) = &message.thinking {
                write!(shown, " thought {thinking:?}").unwrap();
            }
            if let Some(model) = &message.model {
                write!(shown, " by {model}").unwrap();
            }
            shown + &show_usage(&message.usage)
        }
        EngineEvent::TurnDone(done) => format!("done after {}", done.iterations) + &show_usage(&done.usage),
        EngineEvent::Interrupted => "interrupted".to_owned(),
        EngineEvent::Failed(error) => format!("failed: {error}"),
    }
}

fn show_usage(usage: &Usage) -> String {
    let Usage { input_tokens, output_tokens, cache_tokens, thinking_tokens, cost_nanos } = usage;
    let mut shown = String::new();
    if *usage != Usage::default() {
        write!(
            shown,
            " used {input_tokens}+{cache_tokens} in, {output_tokens} out, {thinking_tokens} thinking"
        )
        .unwrap();
    }
    if let Some(nanos) = cost_nanos {
        write!(shown, " for {nanos}").unwrap();
    }
    shown
}
