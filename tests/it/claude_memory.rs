//! What Claude Code remembers: over the loss and the stop of its worker, and without its transcript; and nothing else.

use std::fs;

use serde_json::{Value, json};

use crate::support::{COUNTED, Client, Deployment, Engine, Kind, LONG, Options, clis, on, text, until};

fn options() -> Options {
    Options { workers: 1, lease: "4s", claude: true, ..Options::default() }
}

/// What the agent answers, and where its memory came from.
async fn told(client: &Client, session: &str, message: &str) -> (Value, Value) {
    let answer = client.chat_with("claude", Some(session), message).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    (answer["content"].clone(), answer["contextSource"].clone())
}

fn native(content: &str) -> (Value, Value) {
    (json!(content), json!("native"))
}

on!(five_and_one_and_five_are_eleven_over_lost_and_stopped_workers: Embedded, Distributed);
async fn five_and_one_and_five_are_eleven_over_lost_and_stopped_workers(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let session = deployment.client().session_with("claude").await;
    assert_eq!(told(deployment.client(), &session, "X = 5").await, (json!("X = 5"), json!("empty")));
    let id = deployment.native_of(&session).await;

    deployment.replace_worker().await;
    deployment.await_agent().await;
    assert_eq!(told(deployment.client(), &session, "add 1 to x").await, native("X = 6"));
    deployment.stop_and_replace_worker().await;
    deployment.await_agent().await;
    assert_eq!(told(deployment.other(), &session, "add 5 to x").await, native("X = 11"));

    assert_eq!(told(deployment.client(), &session, "what is X").await, native("X = 11"));
    assert_eq!(deployment.native_of(&session).await, id);
    // It was one conversation all along: nothing was told twice.
    let told = deployment.told_last();
    for message in ["X = 5", "add 1 to x", "add 5 to x", "what is X"] {
        assert_eq!(told.iter().filter(|text| *text == message).count(), 1, "{message} in {told:?}");
    }
    deployment.end().await;
}

on!(claude_code_has_no_memory_beside_the_conversation: Embedded);
async fn claude_code_has_no_memory_beside_the_conversation(kind: Kind) {
    const SECRET: &str = "the codeword is swordfish";
    let deployment = Deployment::with(kind, options()).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    told(client, &session, "X = 5").await;
    // Where the CLI would keep notes that outlast a conversation, and where it would look for them.
    let transcript = deployment.transcript(&deployment.native_of(&session).await);
    let memory = transcript.parent().unwrap().join("memory");
    fs::create_dir_all(&memory).unwrap();
    fs::write(memory.join("MEMORY.md"), format!("- [codeword](codeword.md) {SECRET}\n")).unwrap();
    let forked = client.fork(&session, &json!({})).await.json();

    assert_eq!(client.reset(&session).await.status, 200);

    assert_eq!(told(client, &session, "what is x").await.0, "I don't know X");
    assert_eq!(told(client, &text(&forked["sessionId"]), "what is x").await.0, "X = 5");
    for request in deployment.oracle.requests() {
        let body = String::from_utf8_lossy(&request.body);
        assert!(!body.contains(SECRET), "it is shown what was forgotten: {body}");
        assert!(!body.contains("MEMORY.md"), "it is told of a memory: {body}");
    }
    deployment.end().await;
}

on!(a_conversation_without_its_transcript_begins_anew_with_the_messages: Embedded, Distributed);
async fn a_conversation_without_its_transcript_begins_anew_with_the_messages(kind: Kind) {
    // No process is kept, which would know better.
    let env = vec![("ROUNDHOUSE_ENGINE_IDLE", "0s".to_owned())];
    let deployment = Deployment::with(kind, Options { env, ..options() }).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    told(client, &session, "X = 5").await;
    told(client, &session, "add 6 to x").await;
    let lost = deployment.native_of(&session).await;
    fs::remove_file(deployment.transcript(&lost)).unwrap();
    let mut events = client.follow(&session, None).await;

    let first = told(deployment.other(), &session, "what is x").await;

    assert_eq!(first, (json!("X = 11"), json!("replay")));
    assert_eq!(events.until("context.reset").await.data["reason"], "resume_dropped");
    let new = deployment.native_of(&session).await;
    assert_ne!(new, lost);
    assert_eq!(told(client, &session, "add 1 to x").await, native("X = 12"));
    assert_eq!(deployment.native_of(&session).await, new);
    // The reset was told once, and all that was said before is still displayed.
    loop {
        let event = events.next().await.unwrap();
        assert_ne!(event.name, "context.reset");
        if event.name == "chat.response" && event.data["content"] == "X = 12" {
            break;
        }
    }
    let said: Vec<_> = client.messages(&session).await;
    assert_eq!(said.len(), 8, "{said:?}");
    assert_eq!(text(&client.session(&session).await["status"]), "idle");
    deployment.end().await;
}

on!(each_caller_gets_its_own_answer_though_the_worker_was_killed_meanwhile: Embedded);
async fn each_caller_gets_its_own_answer_though_the_worker_was_killed_meanwhile(kind: Kind) {
    let mut deployment = Deployment::with(kind, options()).await;
    let client = deployment.client().clone();
    let session = client.session_with("claude").await;
    assert_eq!(client.says("claude", &session, "X = 5").await, "X = 5");
    let mut events = client.follow(&session, None).await;
    let first = text(&client.later_with("claude", &session, LONG).await["jobId"]);
    events.until_it_speaks(1).await;
    let second = text(&client.later_with("claude", &session, "X = 9").await["jobId"]);
    deployment.in_reach(Engine::Claude, &session, "X = 9").await;
    let id = deployment.native_of(&session).await;

    deployment.apis[0].kill().await;
    // The way to its provider has gone with the server, so Claude Code gives up by itself.
    deployment.oracle.hurry();
    until("Claude Code to end by itself", async || clis(&id).is_empty().then_some(())).await;
    deployment.restart(0).await;

    let client = deployment.client();
    let (first, second) = (client.ended(&first).await, client.ended(&second).await);
    // The oracle also says that it was told of the interruption.
    assert!(text(&first["result"]["content"]).starts_with(COUNTED), "{first}");
    // One turn answers both where the second message was sent again together with the first.
    assert!(text(&second["result"]["content"]).contains("X = 9"), "{second}");
    assert_eq!(told(client, &session, "what is x").await, native("X = 9"));
    deployment.end().await;
}
