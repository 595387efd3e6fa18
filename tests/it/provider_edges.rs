//! What providers do at the edges of their protocol, seen from outside: in results, events and rows, and in what they are
//! sent by the next turn, wherever that runs.

use serde_json::{Value, json};

use crate::script::{Reply, Server, says, status, streamed};
use crate::support::{Deployment, Kind, Options, agent, on, text};

const TOOLS: &str = "tools = [\"shell\"]\nmax_tries = 1\n";
const DONE: &str = "data: [DONE]\n\n";

fn chunks(chunks: &[Value]) -> Reply {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    streamed(events.chain([DONE.to_owned()]))
}

async fn with_server(kind: Kind, replies: Vec<Reply>) -> (Deployment, Server) {
    let server = Server::start(replies).await;
    let agents = agent("edgy", &server.base_url, TOOLS);
    (Deployment::with(kind, Options { agents, ..Options::default() }).await, server)
}

on!(text_that_was_cut_short_says_so_everywhere: Embedded, Distributed);
async fn text_that_was_cut_short_says_so_everywhere(kind: Kind) {
    let cut = chunks(&[json!({"choices": [{"delta": {"content": "hal"}, "finish_reason": "length"}]})]);
    let (deployment, _server) = with_server(kind, vec![cut, says("well")]).await;
    let client = deployment.client();

    let events = client.stream_with("edgy", None, "go").await.all().await;

    let find = |name: &str| &events.iter().find(|event| event.name == name).expect(name).data;
    assert_eq!((&find("done")["content"], &find("done")["truncated"]), (&json!("hal"), &json!("length")));
    assert_eq!(find("message.completed")["message"]["truncated"], "length");
    let session = text(&find("done")["sessionId"]);
    let rows = deployment.other().items(&format!("/sessions/{session}/messages")).await;
    assert_eq!((&rows[1]["truncated"], &rows[1]["failed"]), (&json!("length"), &json!(false)));
    assert_eq!(rows[1]["inputTokens"], Value::Null, "nothing was reported");
    let next = client.chat_with("edgy", Some(&session), "on").await.json();
    assert_eq!((&next["content"], &next["truncated"]), (&json!("well"), &Value::Null));
    deployment.end().await;
}

on!(text_before_a_failure_is_kept_and_marked: Embedded, Distributed);
async fn text_before_a_failure_is_kept_and_marked(kind: Kind) {
    let broken = streamed([
        "data: {\"choices\":[{\"delta\":{\"content\":\"hal\"}}]}\n\n",
        "error: {\"code\":500,\"message\":\"slot is gone\"}\n\n",
    ]);
    let (deployment, server) = with_server(kind, vec![broken, says("well")]).await;
    let client = deployment.client();
    let session = client.session_with("edgy").await;

    let events = client.stream_with("edgy", Some(&session), "go").await.all().await;

    assert!(text(&events.last().unwrap().data["detail"]).contains("slot is gone"));
    let completed = events.iter().find(|event| event.name == "message.completed").expect("the text so far");
    assert_eq!(
        (&completed.data["message"]["content"], &completed.data["message"]["failed"]),
        (&json!("hal"), &json!(true))
    );
    let rows = deployment.other().items(&format!("/sessions/{session}/messages")).await;
    assert_eq!((&rows[1]["content"], &rows[1]["failed"]), (&json!("hal"), &json!(true)));
    assert_eq!(client.chat_with("edgy", Some(&session), "on").await.json()["content"], "well");
    let sent = &server.requests()[1].body["messages"];
    assert_eq!(sent[1]["role"], "assistant");
    assert!(text(&sent[1]["content"]).starts_with("hal\n\n(This message broke off"), "{sent}");
    deployment.end().await;
}

on!(what_a_provider_needs_back_outlives_turns_and_forks: Embedded, Distributed);
async fn what_a_provider_needs_back_outlives_turns_and_forks(kind: Kind) {
    let arguments = json!({"command": "echo one"}).to_string();
    let call = json!({"index": 0, "id": "a", "function": {"name": "shell", "arguments": arguments},
                      "extra_content": {"google": {"thought_signature": "sig"}}});
    let thoughtful = chunks(&[
        json!({"choices": [{"delta": {"reasoning_content": "first one"}}]}),
        json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}),
    ]);
    let (deployment, server) = with_server(kind, vec![thoughtful, says("well")]).await;
    let client = deployment.client();
    let first = client.chat_with("edgy", None, "go").await.json();
    let session = text(&first["sessionId"]);
    let rows = client.items(&format!("/sessions/{session}/messages")).await;
    assert!(!Value::from(rows).to_string().contains("thought_signature"), "it is never shown");

    client.chat_with("edgy", Some(&session), "on").await;
    let fork = deployment.other().fork(&session, &json!({})).await.json();
    client.chat_with("edgy", Some(&text(&fork["sessionId"])), "and on").await;

    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    for request in &requests[1..] {
        let message = &request.body["messages"][1];
        assert_eq!(message["reasoning_content"], "first one");
        assert_eq!(message["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "sig");
    }
    deployment.end().await;
}

on!(an_image_that_is_refused_does_not_end_the_session: Embedded, Distributed);
async fn an_image_that_is_refused_does_not_end_the_session(kind: Kind) {
    let refusal = r#"{"error":{"message":"this model does not support image input"}}"#;
    let (deployment, server) = with_server(kind, vec![status(400, "", refusal), says("well")]).await;
    let client = deployment.client();
    let session = client.session_with("edgy").await;
    let image = json!({"name": "a.png", "mediaType": "image/png", "data": "iVBORw0KGgo="});
    let body = json!({"message": "look at this", "attachments": [image], "sessionId": session});

    let refused = client.post("/agents/edgy/chat", &body).await;

    assert_eq!(refused.code(), "502 ENGINE_FAILED");
    assert!(refused.body.contains("look at this"), "{}", refused.body);
    let next = deployment.other().chat_with("edgy", Some(&session), "on").await.json();
    assert_eq!(next["content"], "well");
    let sent = server.requests()[1].body["messages"].clone();
    assert_eq!(sent[0]["content"], "look at this\n\n[An attachment that the provider refused is left out.]");
    assert!(text(&sent[1]["content"]).contains("the turn failed"), "{sent}");
    deployment.end().await;
}
