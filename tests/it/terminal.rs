//! The terminal client: what a person sees of the agent's tools and questions, and what they type.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::script::{Act, Server, calls, says};
use crate::support::{Client, Deployment, Engine, Gate, Kind, Options, Relay, Talk, agent, on, text, until};

const SAY: &str = "sleep 0 then say hi";
const ALLOW: &str = "Allow? y, or n and why: ";
/// How what matters less begins on a terminal.
const DIM: &str = "\x1b[2m";

/// The session that a talk was about: the last word that it shows.
fn session_of(seen: &str) -> &str {
    seen.split_whitespace().last().expect("the session's id at the end")
}

/// What a session's agent was told by its tools.
async fn tool_rows(client: &Client, session: &str) -> Vec<String> {
    let messages = client.messages(session).await;
    messages.iter().filter_map(|line| line.strip_prefix("tool: ")).map(str::to_owned).collect()
}

async fn a_call_is_allowed_and_one_denied(kind: Kind, engine: Engine, tool: &str, command: &str) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let mut talk = Talk::at_terminal(client, &[engine.asking()]);
    talk.shows("> ").await;

    talk.types(SAY);
    talk.shows(&format!("The agent wants to use {tool}:\r\n")).await;
    talk.shows(&format!("command: {command}\r\n")).await;
    talk.shows(ALLOW).await;
    talk.types("perhaps");
    talk.shows("y or n, please").await;
    talk.shows(ALLOW).await;
    talk.types("y");
    let told = talk.shows(&format!("{tool} is done")).await;
    assert!(told.contains(&format!("{DIM}{tool}: {command}")), "{told:?}");
    talk.shows("hi\r\n> ").await;
    talk.types(SAY);
    talk.shows(ALLOW).await;
    talk.types("n not on a Monday");
    talk.shows(&format!("{tool} failed: ")).await;
    talk.shows("> ").await;
    talk.ends_input();

    let (status, _, seen) = talk.ended().await;
    assert!(status.success(), "{status}");
    let rows = tool_rows(client, session_of(&seen)).await;
    assert_eq!((rows.len(), rows[0].trim()), (2, "hi"), "{rows:?}");
    assert!(rows[1].contains("not on a Monday"), "{rows:?}");
    deployment.end().await;
}

on!(a_person_decides_about_the_calls_of_an_agent: Embedded, Distributed);
async fn a_person_decides_about_the_calls_of_an_agent(kind: Kind) {
    a_call_is_allowed_and_one_denied(kind, Engine::OpenAi, "shell", "sleep 0 && echo hi").await;
}

on!(a_person_decides_about_the_calls_of_claude_code: Embedded);
async fn a_person_decides_about_the_calls_of_claude_code(kind: Kind) {
    a_call_is_allowed_and_one_denied(kind, Engine::Claude, "Bash", "(sleep 0 && echo hi)").await;
}

on!(questions_are_answered_by_numbers_and_by_words: Embedded);
async fn questions_are_answered_by_numbers_and_by_words(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    for agent in ["tooled", "claude"] {
        let mut talk = Talk::at_terminal(client, &[agent]);
        talk.shows("> ").await;
        for (line, heard) in [("2", "no"), ("only on weekdays", "only on weekdays")] {
            talk.types("ask: which one?");
            talk.shows("The agent asks: which one?\r\n  1. yes: Go on\r\n  2. no: Stop\r\n").await;
            talk.shows("A number, or your own words: ").await;
            talk.types("3");
            talk.shows("there is no 3; there are 1 to 2").await;
            talk.types(line);
            let answer = talk.shows("\r\n> ").await;
            assert!(answer.contains(heard), "{agent}: {answer:?}");
        }
        talk.ends_input();
        let (_, _, seen) = talk.ended().await;
        let rows = tool_rows(client, session_of(&seen)).await;
        assert!(rows[0].contains("no") && rows[1].contains("only on weekdays"), "{agent}: {rows:?}");
    }
    deployment.end().await;
}

on!(a_plan_is_changed_and_then_approved: Embedded);
async fn a_plan_is_changed_and_then_approved(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let client = deployment.client();
    let mut talk = Talk::at_terminal(client, &["claude-planning"]);
    for (plan, line) in [("paint it blue", "n paint it red"), ("paint it red", "y")] {
        talk.shows("> ").await;
        talk.types(&format!("plan: {plan}"));
        talk.shows(&format!("The agent's plan:\r\n{plan}\r\n")).await;
        talk.shows("Carry it out? y, or n and what to change: ").await;
        talk.types(line);
    }
    talk.shows("\r\n> ").await;
    talk.ends_input();
    let (_, _, seen) = talk.ended().await;
    let rows = tool_rows(client, session_of(&seen)).await;
    assert!(rows[0].contains("paint it red") && rows[1].contains("approved"), "{rows:?}");
    deployment.end().await;
}

on!(a_line_that_was_typed_before_a_question_does_not_answer_it: Embedded);
async fn a_line_that_was_typed_before_a_question_does_not_answer_it(kind: Kind) {
    for args in [&["clerk"][..], &["clerk", "go"]] {
        let converses = args.len() == 1;
        let gate = Gate::closed();
        let (wait, ask) = (json!({"command": gate.command("hi")}), json!({"question": "when?"}));
        let replies = vec![
            calls(&[("a", "shell", &wait.to_string())]),
            calls(&[("b", "ask_user", &ask.to_string())]),
            vec![Act::Repeat],
            says("yes?"),
        ];
        let model = Server::start(replies).await;
        let agents = agent("clerk", &model.base_url, "tools = [\"shell\", \"ask_user\"]");
        let deployment = Deployment::with(kind, Options { agents, ..Options::default() }).await;
        let client = deployment.client();
        let mut talk = Talk::at_terminal(client, args);
        if converses {
            talk.shows("> ").await;
            talk.types("go");
        }
        until("the tool to run", async || (gate.begun() == 1).then_some(())).await;
        talk.types("y");
        talk.shows("y\r\n").await;

        gate.open();
        talk.shows("The agent asks: when?\r\nYour answer: ").await;
        talk.types("later");

        talk.shows("ask_user is done").await;
        if converses {
            // The line is the next message.
            talk.shows("yes?\r\n> ").await;
            talk.ends_input();
        }
        let (status, _, seen) = talk.ended().await;
        assert!(status.success(), "{status}");
        let session = session_of(&seen);
        assert!(tool_rows(client, session).await[1].contains("later"), "{seen:?}");
        let messages = client.messages(session).await;
        assert_eq!(messages.contains(&"user: y".to_owned()), converses, "{messages:?}");
        deployment.end().await;
    }
}

on!(what_somebody_else_answers_need_not_be_answered_here: Distributed);
async fn what_somebody_else_answers_need_not_be_answered_here(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let other = deployment.other();
    let session = other.session_with("asking").await;
    let mut talk = Talk::at_terminal(deployment.client(), &["asking", "-s", &session, SAY]);
    talk.shows(ALLOW).await;

    let question = other.asked(&session).await;
    assert_eq!(other.decide(&session, &question, &json!({"decision": "allow"})).await.status, 200);

    talk.shows("somebody else has answered: allow\r\n").await;
    let (status, _, seen) = talk.ended().await;
    assert!(status.success() && seen.contains("hi\r\n"), "{status} {seen:?}");
    deployment.end().await;
}

on!(a_question_outlives_the_connection: Embedded, Distributed);
async fn a_question_outlives_the_connection(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let relay = Relay::to(deployment.client()).await;
    let mut talk = Talk::at_terminal(&relay.client, &["asking", SAY]);
    talk.shows(ALLOW).await;

    relay.cut();

    talk.shows("the connection broke; waiting for the answer\r\n").await;
    talk.shows(ALLOW).await;
    talk.types("y");
    talk.shows("shell is done").await;
    let (status, _, seen) = talk.ended().await;
    assert!(status.success() && seen.contains("hi\r\n") && !seen.contains(ALLOW), "{status} {seen:?}");
    deployment.end().await;
}

on!(ctrl_c_cancels_a_turn_that_asks: Embedded);
async fn ctrl_c_cancels_a_turn_that_asks(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let mut talk = Talk::at_terminal(client, &["asking", SAY]);
    talk.shows(ALLOW).await;

    talk.interrupt();

    talk.shows("\r\ncancelled\r\n").await;
    let (status, _, seen) = talk.ended().await;
    assert_eq!(status.code(), Some(128 + Signal::SIGINT as i32), "{seen:?}");
    let session = session_of(&seen);
    let path = format!("/sessions/{session}/interactions");
    assert!(client.items(&path).await.is_empty());
    assert_eq!(client.session(session).await["status"], "idle");
    deployment.end().await;
}

on!(without_a_terminal_it_says_where_to_answer_and_waits: Embedded);
async fn without_a_terminal_it_says_where_to_answer_and_waits(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    // A message as argument, and messages as lines of a file, of which none is an answer.
    for (args, lines, said) in
        [(&["asking", SAY][..], "y\n", "hi\n"), (&["asking"][..], "sleep 0 then say hi\nsay y\n", "hi\ny\n")]
    {
        let mut talk = Talk::piped(client, args, lines);
        talk.shows("the agent asks whether it may use shell: sleep 0 && echo hi\n").await;
        talk.shows("it waits for an answer at POST ").await;
        let url = talk.shows("\n").await;

        let path = url.strip_prefix(&client.url).expect("an address of the server");
        let answered = client.post(path, &json!({"decision": "allow"})).await;

        assert_eq!((answered.status, text(&answered.json()["state"]).as_str()), (200, "answered"));
        let (status, out, seen) = talk.ended().await;
        assert!(status.success(), "{status} {seen:?}");
        assert_eq!(out, said, "nothing but answers");
        assert!(
            seen.contains("shell: sleep 0 && echo hi\nshell is done\n") && !seen.contains('\x1b'),
            "{seen:?}"
        );
    }
    deployment.end().await;
}

on!(standard_output_has_the_answer_alone: Embedded);
async fn standard_output_has_the_answer_alone(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let mut talk = Talk::redirected(deployment.client(), &["asking", SAY]);
    talk.shows(ALLOW).await;
    talk.types("y");
    let output = talk.shows("shell is done").await;
    assert!(output.contains(&format!("{DIM}shell | hi")), "{output:?}");
    let (status, out, _) = talk.ended().await;
    assert!(status.success() && out == "hi\n", "{status} {out:?}");
    deployment.end().await;
}
