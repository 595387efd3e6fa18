//! The tools that whoever runs the engine answers.

use roundhouse_engines::contract::{Answer, EngineEvent};
use roundhouse_engines::openai::Settings;

use crate::script::{Server, calls, says};
use crate::turns::{answered, engine, input, next, open, rest, settings, turn};

#[tokio::test]
async fn a_question_goes_to_whoever_runs_the_engine() {
    let cases = [
        (
            r#"{"questions":[{"question":"Go?","header":"H","options":[{"label":"yes","description":"on"},"no"],"multiSelect":false,"x":1}]}"#,
            r#"{"questions":[{"header":"H","multiSelect":false,"options":[{"description":"on","label":"yes"},{"label":"no"}],"question":"Go?"}]}"#,
        ),
        (r#"{"question":"Go?"}"#, r#"{"questions":[{"question":"Go?"}]}"#),
        (r#"{"questions":"Go?"}"#, r#"{"questions":[{"question":"Go?"}]}"#),
    ];
    for (arguments, asked) in cases {
        let server = Server::start([calls(&[("a", "ask_user", arguments)]), says("hi")]).await;
        let engine = engine(Settings { ask_user: true, ..settings(&server.base_url) });
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();

        let events = answered(&mut *session, [Answer::Text("yes".to_owned())]).await;

        assert_eq!(events[2], format!("asks {asked}"));
        assert_eq!(events[3], "ask_user did a: yes");
    }
}

#[tokio::test]
async fn another_agent_is_asked_for() {
    let cases = [
        (
            r#"{"agent":"b","message":"go"}"#,
            Answer::Text("done".to_owned()),
            "a spawns b for \"go\" and waits",
            "spawn_agent did a: done",
        ),
        (
            r#"{"agent":"b","message":"go","mode":"async"}"#,
            Answer::Deny("too deep".to_owned()),
            "a spawns b for \"go\"",
            "spawn_agent failed a: too deep",
        ),
    ];
    for (arguments, answer, asked, result) in cases {
        let server = Server::start([calls(&[("a", "spawn_agent", arguments)]), says("hi")]).await;
        let engine = engine(Settings { spawn_agent: Some(vec![]), ..settings(&server.base_url) });
        let mut session = open(&engine).await;
        session.send(input(&["hello"])).await.unwrap();

        let events = answered(&mut *session, [answer]).await;

        assert_eq!(events[2..4], [asked, result]);
    }
}

#[tokio::test]
async fn questions_that_ask_nothing_are_told_to_the_model() {
    let cases = [
        ("ask_user", r#"{"questions":[]}"#),
        ("ask_user", r#"{"questions":[{"question":" "}]}"#),
        ("spawn_agent", r#"{"agent":"b"}"#),
        ("spawn_agent", r#"{"agent":"","message":"go"}"#),
        ("spawn_agent", r#"{"agent":"b","message":"go","mode":"later"}"#),
    ];
    for (name, arguments) in cases {
        let server = Server::start([calls(&[("a", name, arguments)]), says("hi")]).await;
        let events =
            turn(Settings { ask_user: true, spawn_agent: Some(vec![]), ..settings(&server.base_url) }).await;

        assert!(events[2].starts_with(&format!("{name} failed a: ")), "{events:?}");
    }
}

#[tokio::test]
async fn an_answer_to_nothing_that_is_open_is_ignored() {
    let server = Server::start([calls(&[("a", "ask_user", r#"{"question":"Go?"}"#)]), says("hi")]).await;
    let engine = engine(Settings { ask_user: true, ..settings(&server.base_url) });
    let mut session = open(&engine).await;
    session.answer("a", Answer::Text("no turn".to_owned())).await;
    session.send(input(&["hello"])).await.unwrap();
    let id = loop {
        if let EngineEvent::Asked { id, .. } = next(&mut *session).await {
            break id;
        }
    };

    session.answer("other", Answer::Text("wrong".to_owned())).await;
    session.answer(&id, Answer::Text("right".to_owned())).await;
    session.answer(&id, Answer::Text("late".to_owned())).await;

    assert_eq!(rest(&mut *session).await[0], "ask_user did a: right");
}
