//! Tools of MCP servers: the official example server from npm, over its standard streams and over HTTP.

use std::collections::HashSet;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::script::{Act, Reply, Server, calls, says};
use crate::served::{everything, runs, start};
use crate::support::{Deployment, Kind, Options, Sleepers, SseEvent, agent, children, on, until};

/// An answer that calls a tool.
fn asks(tool: &str, input: &Value) -> Reply {
    calls(&[("a", tool, &input.to_string())])
}

/// An answer that says what the tool has said.
fn repeats() -> Reply {
    vec![Act::Repeat]
}

/// The agent `clerk` with these servers, whose model does this.
async fn clerk(kind: Kind, servers: &str, replies: Vec<Reply>) -> (Deployment, Server) {
    let model = Server::start(replies).await;
    let agents = agent("clerk", &model.base_url, &format!("[agents.clerk.mcp]\n{servers}"));
    let options = Options { workers: 1, lease: "4s", agents, ..Options::default() };
    (Deployment::with(kind, options).await, model)
}

/// The server that the worker starts.
fn every() -> String {
    format!("every = {{ command = [\"node\", \"{}\", \"stdio\"] }}", everything())
}

/// The only process that runs turns.
fn worker(deployment: &Deployment) -> u32 {
    deployment.workers.first().unwrap_or(&deployment.apis[0]).pid()
}

fn completed(events: &[SseEvent]) -> (&Value, &Value) {
    let event = events.iter().find(|event| event.name == "tool.completed").expect("tool.completed");
    (&event.data["success"], &event.data["result"])
}

on!(a_tool_of_a_server_is_called_and_its_result_is_in_the_answer: Embedded, Distributed);
async fn a_tool_of_a_server_is_called_and_its_result_is_in_the_answer(kind: Kind) {
    let (_process, port) = start(None).await;
    let servers = format!("{}\nweb = {{ url = \"http://127.0.0.1:{port}/mcp\" }}", every());
    let input = json!({ "a": 2, "b": 3 });
    let replies = vec![asks("every__get-sum", &input), repeats(), asks("web__get-sum", &input), repeats()];
    let (deployment, model) = clerk(kind, &servers, replies).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("clerk").await;
    for name in ["every__get-sum", "web__get-sum"] {
        let events = client.stream_with("clerk", Some(&session), "add").await.all().await;

        let started = events.iter().find(|event| event.name == "tool.started").expect("tool.started");
        assert_eq!((&started.data["name"], &started.data["input"]), (&json!(name), &input));
        let sum = json!("The sum of 2 and 3 is 5.");
        assert_eq!(completed(&events), (&json!(true), &sum));
        let done = &events.last().unwrap().data;
        assert_eq!((&done["content"], &done["iterations"]), (&sum, &json!(2)));
    }
    let roles = ["user", "assistant", "tool", "assistant"].repeat(2);
    assert_eq!(other.roles(&session).await, roles);
    let offered = model.requests()[0].body["tools"].to_string();
    for name in ["every__echo", "web__echo"] {
        assert!(offered.contains(&format!("\"{name}\"")), "{offered}");
    }
    let started = children(worker(&deployment));
    assert_eq!(started.len(), 1, "one process for both turns");
    deployment.end().await;
    until("it to end with its worker", async || (!runs(started[0])).then_some(())).await;
}

on!(a_server_that_dies_is_started_again_once_and_then_said_to_be_away: Embedded, Distributed);
async fn a_server_that_dies_is_started_again_once_and_then_said_to_be_away(kind: Kind) {
    let turn = |word: &str| [asks("every__echo", &json!({ "message": word })), repeats()];
    let replies = ["one", "two", "three"].iter().flat_map(|word| turn(word)).collect();
    let (deployment, model) = clerk(kind, &every(), replies).await;
    let client = deployment.client();
    let session = client.session_with("clerk").await;
    let mut pids = HashSet::new();
    for word in ["one", "two"] {
        let said = client.chat_with("clerk", Some(&session), "go").await.json();
        assert_eq!(said["content"], format!("Echo: {word}"));
        let found = children(worker(&deployment));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(pids.insert(found[0]), "another process");
        kill(Pid::from_raw(found[0].cast_signed()), Signal::SIGKILL).unwrap();
        until("the server to be gone", async || (!runs(found[0])).then_some(())).await;
    }

    let events = client.stream_with("clerk", Some(&session), "go").await.all().await;

    let says = "The MCP server `every` is unavailable: it ended again soon after it was started anew";
    assert_eq!(completed(&events), (&json!(false), &json!(says)));
    let done = events.last().unwrap();
    assert_eq!((done.name.as_str(), &done.data["content"]), ("done", &json!(says)), "it fails no turn");
    let told = model.requests().pop().unwrap().body["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(told["content"], says);
    deployment.end().await;
}

on!(what_a_server_has_started_ends_although_its_worker_was_killed: Embedded, Distributed);
async fn what_a_server_has_started_ends_although_its_worker_was_killed(kind: Kind) {
    let sleepers = Sleepers::new();
    let script = format!("({}) >/dev/null 2>&1 & exec node {} stdio", sleepers.command(), everything());
    let server = format!("every = {{ command = [\"sh\", \"-c\", {}] }}", json!(script));
    let replies = vec![asks("every__echo", &json!({ "message": "one" })), repeats(), says("two")];
    let (mut deployment, _model) = clerk(kind, &server, replies).await;
    let said = deployment.client().chat_with("clerk", None, "go").await.json();
    assert_eq!(said["content"], "Echo: one");
    sleepers.are(2).await;

    // It has no session then, so nobody is told of its death by a lease.
    deployment.replace_worker().await;

    sleepers.are(0).await;
    assert_eq!(deployment.client().chat_with("clerk", None, "go").await.json()["content"], "two");
    sleepers.are(2).await;
    deployment.end().await;
    sleepers.are(0).await;
}
