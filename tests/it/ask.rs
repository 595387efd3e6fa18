//! `ask_user`: the agent asks, a person answers, the model reads it.

use serde_json::json;

use crate::support::{Deployment, Kind, on, text};

on!(an_agent_asks_and_reads_the_answer: Embedded, Distributed);
async fn an_agent_asks_and_reads_the_answer(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    for (answer, heard) in [
        (json!({"decision": "allow", "answers": {"which one?": "yes"}}), r#"{"which one?":"yes"}"#),
        (json!({"decision": "allow", "message": "neither"}), "neither"),
        (json!({"decision": "deny"}), "the person does not want to answer"),
        (json!({"decision": "deny", "message": "ask my lawyer"}), "ask my lawyer"),
    ] {
        let session = client.session_with("tooled").await;
        let caller = client.waiting_with("tooled", &session, "ask: which one?");
        let asked = other.asked(&session).await;

        assert_eq!(asked["kind"], "question");
        let question = &asked["payload"]["questions"][0];
        assert_eq!(
            (&question["question"], &question["options"][0]["label"]),
            (&json!("which one?"), &json!("yes"))
        );
        assert_eq!(client.session(&session).await["status"], "waiting");
        assert_eq!(other.decide(&session, &asked, &answer).await.status, 200);

        let result = caller.result().await;
        assert_eq!(result["content"], heard, "{answer}");
        assert_eq!(client.messages(&session).await[2], format!("tool: {heard}"));
    }
    // An answer that cannot be stored is refused, and the question stays.
    let session = client.session_with("tooled").await;
    let caller = client.waiting_with("tooled", &session, "ask: which one?");
    let asked = other.asked(&session).await;
    for wrong in [
        json!({}),
        json!({"decision": "perhaps"}),
        json!({"decision": "allow", "message": "\0"}),
        json!({"decision": "allow", "answers": {"a": "\0"}}),
        json!({"decision": "allow", "answers": []}),
        json!({"decision": "allow", "answer": {}}),
    ] {
        let refused = client.decide(&session, &asked, &wrong).await;
        assert_eq!(refused.code(), "422 INVALID_REQUEST", "{wrong}");
    }
    let body = json!({"decision": "allow", "message": "at last"});
    assert_eq!(client.decide(&session, &asked, &body).await.status, 200);
    assert_eq!(text(&caller.result().await["content"]), "at last");
    deployment.end().await;
}
