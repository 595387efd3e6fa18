//! What the CLI may do: rules, and questions to a person.

use roundhouse_engines::claude::Settings;
use roundhouse_engines::claude::transcript::Transcripts;
use roundhouse_engines::contract::{Answer, Asked, ContextMessage, EngineEvent, Native, TurnInput};
use serde_json::{Value, json};

use crate::host::{Host, Session, answer, input, permissions, read};

fn asked(events: &[EngineEvent]) -> (String, Asked) {
    match events.last() {
        Some(EngineEvent::Asked { id, asked }) => (id.clone(), asked.clone()),
        other => panic!("nothing was asked: {other:?}"),
    }
}

async fn until_asked(session: &mut Session) -> (String, Asked) {
    asked(&session.until(|event| matches!(event, EngineEvent::Asked { .. })).await)
}

fn with(host: &Host, rules: Value) -> Settings {
    Settings { permissions: permissions(rules), ..host.settings() }
}

fn tools(events: &[EngineEvent]) -> Vec<String> {
    let shown = events.iter().filter_map(|event| match event {
        EngineEvent::ToolStarted(call) => Some(format!("{} started {}", call.name, call.arguments)),
        EngineEvent::ToolDone { name, success, result, .. } => {
            Some(format!("{name} {}: {result}", if *success { "did" } else { "failed" }))
        }
        _ => None,
    });
    shown.collect()
}

#[tokio::test]
async fn a_harmless_command_is_asked_about_where_the_rules_say_so_and_the_answers_do_what_they_say() {
    let host = Host::new().await;
    let mut session = host.open_with(with(&host, json!({"ask": ["Bash"]})), None).await;
    let cases = [
        (Answer::Allow { input: None }, "yes", true),
        (Answer::Allow { input: Some(json!({"command": "echo other"})) }, "other", true),
        (Answer::Deny("not today".to_owned()), "not today", false),
        (Answer::Deny(String::new()), "This call of `Bash` is not permitted.", false),
        (Answer::Allow { input: Some(json!("echo")) }, "no object", false),
    ];
    for (given, expected, runs) in cases {
        session.send("sleep 0 then say yes").await;
        let (id, asked) = until_asked(&mut session).await;
        let Asked::Permission { call } = asked else { panic!("{asked:?}") };
        assert_eq!(call.name, "Bash");
        assert!(call.arguments.contains("echo yes"), "{call:?}");
        session.0.answer("another", Answer::Deny("nobody asked that".to_owned())).await;
        session.0.answer(&id, given).await;
        session.0.answer(&id, Answer::Deny("too late".to_owned())).await;
        let events = session.rest().await;
        assert!(answer(&events).contains(expected), "{events:?}");
        let started = events.iter().any(|event| matches!(event, EngineEvent::ToolStarted(_)));
        assert_eq!(started, runs, "{events:?}");
    }
}

#[tokio::test]
async fn what_is_allowed_runs_unasked_and_what_is_denied_does_not_run_even_if_harmless() {
    let host = Host::new().await;
    let rules = json!({"default": "deny", "allow": ["Bash"], "deny": ["Bash(touch)"]});
    let mut session = host.open_with(with(&host, rules), None).await;
    let path = host.path("work").join("made");
    session.send("sleep 0 then say allowed").await;
    let events = session.rest().await;
    assert_eq!(answer(&events), "allowed");
    assert_eq!(tools(&events).len(), 2, "{events:?}");
    session.close().await;

    let denied = host.open_with(with(&host, json!({"deny": ["Bash(sleep)"]})), None);
    let mut session = denied.await;
    session.send(&format!("sleep 0 then say x; touch {}", path.display())).await;
    let events = session.rest().await;
    assert_eq!(tools(&events), ["Bash failed: This call of `Bash` is not permitted."]);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_tool_that_is_denied_altogether_is_not_offered() {
    let host = Host::new().await;
    let mut session = host.open_with(with(&host, json!({"deny": ["Bash"]})), None).await;
    assert_eq!(session.chat("sleep 0 then say x").await, "I have no shell");

    let few = Settings { tools: Some(vec!["Read".to_owned()]), ..host.settings() };
    let mut session = host.open_with(few, None).await;
    assert_eq!(session.chat("sleep 0 then say x").await, "I have no shell");
    let offered = host.requests().last().unwrap().json()["tools"].clone();
    let names: Vec<_> = offered.as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"Read") && !names.contains(&"Write"), "{names:?}");
}

#[tokio::test]
async fn other_agents_of_the_host_cannot_be_seen() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.chat("say hi").await;
    let request = host.requests().last().unwrap().json().to_string();
    assert!(!request.contains("ListAgents") && !request.contains("SendMessage"), "{request}");
}

#[tokio::test]
async fn a_question_gets_its_answers_and_no_answer_is_an_answer_too() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let given = |answers: Value, message: Option<&str>| Answer::Given {
        answers: answers.as_object().unwrap().clone(),
        message: message.map(str::to_owned),
    };
    let cases = [
        (given(json!({"Which one?": "yes"}), None), "\"Which one?\"=\"yes\""),
        (given(json!({"Which one?": ["yes", "no"]}), Some("both")), "\"Which one?\"=\"yes, no (both)\""),
        (given(json!({}), Some("neither")), "\"Which one?\"=\"neither\""),
        (Answer::Text("free".to_owned()), "\"Which one?\"=\"free\""),
        (Answer::Deny("nobody is here".to_owned()), "nobody is here"),
    ];
    for (given, expected) in cases {
        session.send("ask: Which one?").await;
        let (id, asked) = until_asked(&mut session).await;
        let Asked::Question(questions) = asked else { panic!("{asked:?}") };
        assert_eq!(questions["questions"][0]["question"], "Which one?");
        assert_eq!(questions["questions"][0]["options"][0]["label"], "yes");
        assert!(!session.0.is_warm());
        session.0.answer(&id, given).await;
        let events = session.rest().await;
        assert!(answer(&events).contains(expected), "{expected}: {events:?}");
    }
}

#[tokio::test]
async fn a_plan_is_revised_until_it_is_approved() {
    let host = Host::new().await;
    let mut settings = Settings { permission_mode: Some("plan".to_owned()), ..host.settings() };
    // Else the tool would have to be searched for first.
    settings.env.insert("ENABLE_TOOL_SEARCH".to_owned(), "false".into());
    let mut session = host.open_with(settings, None).await;
    session.send("plan: paint it blue").await;
    let (id, asked) = until_asked(&mut session).await;
    assert_eq!(asked, Asked::Plan(json!({"plan": "paint it blue"})));
    session.0.answer(&id, Answer::Deny("paint it red".to_owned())).await;
    let events = session.rest().await;
    assert!(answer(&events).contains("paint it red"), "{events:?}");

    session.send("plan: paint it red").await;
    let (id, _) = until_asked(&mut session).await;
    session.0.answer(&id, Answer::Allow { input: None }).await;
    let events = session.rest().await;
    assert!(answer(&events).contains("approved"), "{events:?}");
}

/// The CLI's own mode in the last turn, as its transcript has it.
fn mode(host: &Host, native: &str) -> String {
    let native = Native { id: native.to_owned(), cwd: host.path("work") };
    let transcript = read(Transcripts::new(host.path("config")).path(&native));
    let entries = transcript.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut modes = entries.filter_map(|entry| entry["permissionMode"].as_str().map(str::to_owned));
    modes.next_back().expect("a mode")
}

#[tokio::test]
async fn a_session_plans_until_a_plan_is_approved_whether_its_process_is_kept_or_not() {
    let host = Host::new().await;
    let mut settings = Settings { permission_mode: Some("plan".to_owned()), ..host.settings() };
    settings.env.insert("ENABLE_TOOL_SEARCH".to_owned(), "false".into());
    let context = vec![
        ContextMessage::User { text: "say hi".to_owned(), attachments: vec![], opaque: None },
        ContextMessage::Assistant { text: "hi".to_owned(), tool_calls: vec![], opaque: None },
    ];
    let begun = TurnInput { context, ..input("say begun") };
    for first in [input("say begun"), begun] {
        let mut session = host.open_with(settings.clone(), None).await;
        session.0.send(first).await.unwrap();
        session.rest().await;
        let native = session.native();
        assert_eq!(mode(&host, &native), "plan");
        session.close().await;

        let mut session = host.open_with(settings.clone(), Some(&native)).await;
        session.send("plan: paint it blue").await;
        let (id, _) = until_asked(&mut session).await;
        assert_eq!(mode(&host, &native), "plan");
        session.0.answer(&id, Answer::Allow { input: None }).await;
        session.rest().await;
        session.chat("say approved").await;
        assert_eq!(mode(&host, &native), "default");
        session.close().await;

        let mut session = host.open_with(settings.clone(), Some(&native)).await;
        session.chat("say later").await;
        assert_eq!(mode(&host, &native), "default");
        session.close().await;
    }
}

#[tokio::test]
async fn two_questions_are_asked_one_after_the_other() {
    let host = Host::new().await;
    let mut session = host.open_with(with(&host, json!({"ask": ["Agent", "Bash"]})), None).await;
    session.send("spawn helper: sleep 0 then say inside").await;
    let (id, asked) = until_asked(&mut session).await;
    let Asked::Permission { call } = asked else { panic!("{asked:?}") };
    assert_eq!(call.name, "Agent");
    session.0.answer(&id, Answer::Allow { input: None }).await;
    let (id, asked) = until_asked(&mut session).await;
    let Asked::Permission { call } = asked else { panic!("{asked:?}") };
    assert_eq!(call.name, "Bash", "a sub-agent asks as well");
    session.0.answer(&id, Answer::Allow { input: None }).await;
    let events = session.rest().await;
    assert!(answer(&events).contains("inside"), "{events:?}");
}
