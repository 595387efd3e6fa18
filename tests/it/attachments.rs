//! Files that come with a message reach the model as what they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Deployment, Kind, on, text};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and the rest";

fn file(name: &str, media_type: &str, bytes: &[u8]) -> Value {
    json!({ "name": name, "mediaType": media_type, "data": STANDARD.encode(bytes) })
}

on!(files_reach_the_model: Embedded, Distributed);
async fn files_reach_the_model(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let files = [file("a.png", "image/png", PNG), file("b.txt", "text/plain", "größe".as_bytes())];

    let first = client.ask(json!({"message": "X = 5", "attachments": files})).await.json();

    let session = text(&first["sessionId"]);
    assert!(text(&first["content"]).starts_with("X = 5"), "{first}");
    assert_eq!(other.chat(Some(&session), "what is x").await.json()["content"], "X = 5");
    let requests = deployment.oracle.requests();
    let parts = requests[0].json()["messages"][0]["content"].clone();
    assert_eq!(requests[1].json()["messages"][0]["content"], parts, "they stay in the context");
    let parts = parts.as_array().expect("content in parts");
    let url = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    assert!(
        parts.iter().any(|part| part["type"] == "image_url" && part["image_url"]["url"] == *url),
        "{parts:?}"
    );
    let has = |wanted: &str| {
        parts.iter().any(|part| part["type"] == "text" && text(&part["text"]).contains(wanted))
    };
    assert!(has("X = 5") && has("größe") && has("b.txt"), "{parts:?}");
    let message = client.items(&format!("/sessions/{session}/messages")).await.remove(0);
    assert_eq!(message["attachments"][0]["name"], "a.png");
    assert_eq!(message["attachments"].as_array().unwrap().len(), 2);
    deployment.end().await;
}

on!(a_file_that_is_not_what_it_says_is_refused: Embedded, Distributed);
async fn a_file_that_is_not_what_it_says_is_refused(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    for (wrong, field) in [
        (file("a.png", "image/png", b"no image"), "attachments[0].mediaType"),
        (file("a.png", "image/jpeg", PNG), "attachments[0].mediaType"),
        (file("a.txt", "text/plain", PNG), "attachments[0].mediaType"),
        (file("a.bin", "application/octet-stream", b"\x7fELF"), "attachments[0].mediaType"),
        (file("a.txt", "text/plain", b"\xff\xfe"), "attachments[0].data"),
        (file("a.txt", "text/plain", b""), "attachments[0].data"),
        (file("", "text/plain", b"a"), "attachments[0].name"),
        (json!({"name": "a.txt", "mediaType": "text/plain", "data": "not base64!"}), "attachments[0].data"),
    ] {
        let refused = client.ask(json!({"message": "say a", "attachments": [wrong]})).await;
        assert_eq!(refused.code(), "422 INVALID_REQUEST", "{wrong}");
        assert_eq!(refused.json()["fields"][0]["path"], field, "{wrong}");
    }
    let many = vec![file("a.txt", "text/plain", b"a"); 17];
    let refused = client.ask(json!({"message": "say a", "attachments": many})).await;
    assert_eq!(refused.json()["fields"][0]["path"], "attachments");
    assert!(client.items("/sessions").await.is_empty());
    deployment.end().await;
}
