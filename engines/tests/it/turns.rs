//! Runs turns and shows what came of them, one line an event.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use roundhouse_engines::contract::{
    Answer, Asked, ContextMessage, Engine, EngineEvent, EngineSession, InputMessage, OpenSession, ToolCall,
    TurnInput, Usage,
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
    let spec = OpenSession {
        session: "s".to_owned(),
        native_session: None,
        anchor: None,
        model: None,
        cwd: PathBuf::from("/"),
        owner: None,
        above: Vec::new(),
    };
    engine.open(spec).await.unwrap()
}

pub(crate) fn message(id: &str, text: &str) -> InputMessage {
    InputMessage { id: id.to_owned(), text: text.to_owned(), attachments: vec![] }
}

pub(crate) fn user(text: &str) -> ContextMessage {
    ContextMessage::User { text: text.to_owned(), attachments: vec![], opaque: None }
}

pub(crate) fn assistant(text: &str) -> ContextMessage {
    ContextMessage::Assistant { text: text.to_owned(), tool_calls: vec![], opaque: None }
}

/// Messages that are answered without anything before them.
pub(crate) fn input(texts: &[&str]) -> TurnInput {
    after(vec![], texts)
}

/// Messages that are answered, behind what was said before.
pub(crate) fn after(mut context: Vec<ContextMessage>, texts: &[&str]) -> TurnInput {
    context.push(user(&texts.join("\n\n")));
    let messages = texts.iter().enumerate().map(|(index, text)| message(&format!("job-{index}"), text));
    TurnInput { context, messages: messages.collect(), earlier: None }
}

pub(crate) async fn next(session: &mut dyn EngineSession) -> EngineEvent {
    tokio::time::timeout(TOO_LONG, session.next()).await.expect("an event in time")
}

/// The rest of the running turn, in which nothing is asked and nothing comes in between.
pub(crate) async fn rest(session: &mut dyn EngineSession) -> Vec<String> {
    answered(session, []).await
}

/// The rest of the running turn; what it asks is answered with these, one after the other.
pub(crate) async fn answered(
    session: &mut dyn EngineSession,
    answers: impl IntoIterator<Item = Answer>,
) -> Vec<String> {
    let mut answers = answers.into_iter();
    let mut shown = vec![];
    loop {
        let event = next(session).await;
        shown.push(show(&event));
        match &event {
            EngineEvent::Boundary => session.proceed(vec![]).await,
            EngineEvent::Asked { id, .. } => session.answer(id, answers.next().unwrap()).await,
            _ => {}
        }
        if event.ends_turn() {
            return shown;
        }
    }
}

/// One turn of a new session.
pub(crate) async fn turn(settings: Settings) -> Vec<String> {
    answer_to(settings, input(&["hello"])).await
}

/// One turn of a new session with this input.
pub(crate) async fn answer_to(settings: Settings, input: TurnInput) -> Vec<String> {
    let engine = engine(settings);
    let mut session = open(&engine).await;
    session.send(input).await.unwrap();
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
            for call in &message.tool_calls {
                write!(shown, " calls {}", show_call(call)).unwrap();
            }
            if let Some(model) = &message.model {
                write!(shown, " by {model}").unwrap();
            }
            shown + &show_usage(&message.usage)
        }
        EngineEvent::ToolStarted(call) => format!("started {}", show_call(call)),
        EngineEvent::ToolOutput { id, text } => format!("output of {id}: {text}"),
        EngineEvent::ToolDone { id, name, success, result, .. } => {
            let how = if *success { "did" } else { "failed" };
            format!("{name} {how} {id}: {result}")
        }
        EngineEvent::Boundary => "boundary".to_owned(),
        EngineEvent::Asked { asked: Asked::Permission { call }, .. } => {
            format!("may it {}", show_call(call))
        }
        EngineEvent::Asked { asked: Asked::Question(questions), .. } => format!("asks {questions}"),
        EngineEvent::Asked { asked: Asked::Plan(plan), .. } => format!("plans {plan}"),
        EngineEvent::Withdrawn { id } => format!("takes back {id}"),
        EngineEvent::Delivered(ids) => format!("delivered {}", ids.join(", ")),
        EngineEvent::Autonomous(message) => format!("by itself {:?}", message.content),
        EngineEvent::Asked { asked: Asked::Spawn { call, agent, message, wait }, .. } => {
            let call = show_id(call);
            format!("{call} spawns {agent} for {message:?}{}", if *wait { " and waits" } else { "" })
        }
        EngineEvent::Compacted { summary, replaced, usage } => {
            format!("{replaced} became {summary:?}") + &show_usage(usage)
        }
        EngineEvent::Refused { at, .. } => format!("refused {at}"),
        EngineEvent::Spent(usage) => "for nothing".to_owned() + &show_usage(usage),
        EngineEvent::Used(usage) => "used".to_owned() + &show_usage(usage),
        EngineEvent::TurnDone(done) => format!("done after {}", done.iterations) + &show_usage(&done.usage),
        EngineEvent::Interrupted => "interrupted".to_owned(),
        EngineEvent::Failed(error) => format!("failed: {error}"),
    }
}

/// Ids that are made up differ from run to run.
fn show_call(ToolCall { id, name, arguments }: &ToolCall) -> String {
    format!("{name} {arguments} as {}", show_id(id))
}

fn show_id(id: &str) -> &str {
    if id.len() == 37 && id.starts_with("call_") { "ours" } else { id }
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
