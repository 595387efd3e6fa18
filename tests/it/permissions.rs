//! Questions to a person: the turn waits, without a slot; the first answer counts, and silence is a no.

use roundhouse_oracle::most_at_once;
use serde_json::{Value, json};

use crate::support::{Answer, COUNTED, Client, Deployment, Kind, LONG, MOMENT, Options, on, text, until};
use crate::tools::cancel;

const SAY: &str = "sleep 0 then say hi";

on!(a_call_that_is_allowed_runs: Embedded, Distributed);
async fn a_call_that_is_allowed_runs(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("asking").await;
    let mut events = client.follow(&session, None).await;
    let answer = client.waiting_with("asking", &session, SAY);

    let requested = events.until("interaction.requested").await.data["interaction"].clone();

    assert_eq!(requested, other.asked(&session).await);
    assert_eq!((&requested["kind"], &requested["state"]), (&json!("permission"), &json!("open")));
    let payload = &requested["payload"];
    assert_eq!(
        (&payload["tool"], &payload["input"]["command"]),
        (&json!("shell"), &json!("sleep 0 && echo hi"))
    );
    assert_eq!(client.session(&session).await["status"], "waiting");
    let mut again = other.follow(&session, None).await;
    let snapshot = again.until("session.snapshot").await.data;
    assert_eq!((&snapshot["interactions"], &snapshot["status"]), (&json!([requested]), &json!("waiting")));
    let decided = decide(other, &session, &requested, json!({"decision": "allow"})).await;
    assert_eq!((decided.status, &decided.json()["state"]), (200, &json!("answered")), "{}", decided.body);

    let result = answer.result().await;
    assert_eq!((text(&result["content"]).trim(), &result["iterations"]), ("hi", &json!(2)));
    let resolved = events.until("interaction.resolved").await.data;
    assert_eq!((&resolved["interactionId"], &resolved["decision"]), (&requested["id"], &json!("allow")));
    again.until("interaction.resolved").await;
    assert!(no_questions(other, &session).await);
    assert_eq!(client.session(&session).await["status"], "idle");
    deployment.end().await;
}

on!(of_two_answers_the_first_counts: Embedded, Distributed);
async fn of_two_answers_the_first_counts(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    for _ in 0..5 {
        let session = client.session_with("asking").await;
        let answer = client.waiting_with("asking", &session, SAY);
        let question = client.asked(&session).await;

        let (allow, deny) = tokio::join!(
            decide(client, &session, &question, json!({"decision": "allow"})),
            decide(other, &session, &question, json!({"decision": "deny", "message": "not on a Monday"})),
        );

        let result = answer.result().await;
        let (second, expected) = if allow.status == 200 { (deny, "hi") } else { (allow, "not on a Monday") };
        assert_eq!(second.code(), "409 INTERACTION_RESOLVED");
        assert_eq!(text(&result["content"]).trim(), expected);
        let third = decide(client, &session, &question, json!({"decision": "allow"})).await;
        assert_eq!(third.code(), "409 INTERACTION_RESOLVED");
    }
    let unknown = json!({"id": uuid::Uuid::now_v7()});
    let session = client.session_with("asking").await;
    let nothing = decide(client, &session, &unknown, json!({"decision": "allow"})).await;
    assert_eq!(nothing.code(), "404 INTERACTION_NOT_FOUND");
    deployment.end().await;
}

on!(the_model_is_told_of_a_no_and_of_silence: Embedded, Distributed);
async fn the_model_is_told_of_a_no_and_of_silence(kind: Kind) {
    let env = vec![("ROUNDHOUSE_INTERACTION_TIMEOUT", "1s".to_owned())];
    let deployment = Deployment::with(kind, Options { env, ..Options::default() }).await;
    let client = deployment.client();
    let mut stream = client.stream_with("asking", None, SAY).await;
    let session = text(&stream.until("interaction.requested").await.data["sessionId"]);

    let resolved = stream.until("interaction.resolved").await.data;

    assert_eq!((&resolved["state"], &resolved["decision"]), (&json!("expired"), &Value::Null));
    let completed = stream.until("tool.completed").await.data;
    assert_eq!(completed["success"], false);
    let done = stream.until("done").await.data;
    assert_eq!(
        (&done["content"], &done["content"]),
        (&completed["result"], &json!("nobody has allowed this call in time"))
    );
    let request = deployment.oracle.requests().pop().unwrap().json();
    let told = &request["messages"].as_array().unwrap().last().unwrap();
    assert_eq!((&told["role"], &told["content"]), (&json!("tool"), &done["content"]));
    let messages = client.messages(&session).await;
    assert_eq!(messages[2], "tool: nobody has allowed this call in time");
    assert!(no_questions(client, &session).await);
    deployment.end().await;
}

on!(a_cancel_closes_the_question: Embedded, Distributed);
async fn a_cancel_closes_the_question(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("asking").await;
    let answer = client.waiting_with("asking", &session, SAY);
    let question = other.asked(&session).await;

    cancel(other, &session).await;

    assert_eq!(answer.result().await["cancelled"], true);
    assert!(no_questions(client, &session).await);
    let late = decide(client, &session, &question, json!({"decision": "allow"})).await;
    assert_eq!(late.code(), "409 INTERACTION_RESOLVED");
    assert_eq!(client.session(&session).await["status"], "idle");
    let next = client.chat_with("asking", Some(&session), "say next").await.json();
    assert!(text(&next["content"]).ends_with("next"), "{next}");
    deployment.end().await;
}

on!(a_turn_that_waits_for_a_person_leaves_its_slot_to_others: Embedded, Distributed);
async fn a_turn_that_waits_for_a_person_leaves_its_slot_to_others(kind: Kind) {
    let deployment = Deployment::with(kind, Options { workers: 1, slots: 1, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let session = client.session_with("asking").await;
        let answer = client.waiting_with("asking", &session, SAY);
        waiting.push((other.asked(&session).await, session, answer));
    }

    assert_eq!(other.chat(None, "say hello").await.json()["content"], "hello");

    for (question, session, answer) in waiting {
        assert!(!answer.is_over());
        assert_eq!(decide(other, &session, &question, json!({"decision": "allow"})).await.status, 200);
        assert_eq!(text(&answer.result().await["content"]).trim(), "hi");
    }
    deployment.end().await;
}

on!(a_turn_behind_one_that_was_cancelled_while_it_waited_needs_a_slot_too: Embedded, Distributed);
async fn a_turn_behind_one_that_was_cancelled_while_it_waited_needs_a_slot_too(kind: Kind) {
    let deployment = Deployment::with(kind, Options { workers: 1, slots: 1, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with("asking").await;
    let waiting = client.waiting_with("asking", &session, SAY);
    other.asked(&session).await;
    let own = json!({"message": LONG, "sessionId": session, "onBusy": "enqueue"});
    let own = client.request("POST", "/agents/asking/chat").header("prefer", "respond-async").json(&own);
    let own = client.send(own).await.json();
    let (_, holds_the_slot) = client.at_work().await;

    cancel(other, &session).await;

    assert_eq!(waiting.result().await["cancelled"], true);
    tokio::time::sleep(MOMENT).await;
    deployment.oracle.hurry();
    assert_eq!(holds_the_slot.all().await.last().unwrap().data["content"], COUNTED);
    let own = deployment.hurried(&text(&own["jobId"])).await;
    assert!(text(&own["result"]["content"]).ends_with(COUNTED), "{own}");
    assert_eq!(most_at_once(&deployment.oracle.requests()), 1);
    deployment.end().await;
}

on!(a_question_outlives_the_process_that_showed_it: Distributed);
async fn a_question_outlives_the_process_that_showed_it(kind: Kind) {
    let mut deployment = Deployment::start(kind).await;
    let session = deployment.client().session_with("asking").await;
    let caller = deployment.other().waiting_with("asking", &session, SAY);
    let question = deployment.other().asked(&session).await;
    let lost = deployment.client().waiting_with("asking", &session, "say more");
    let path = format!("/jobs?sessionId={session}");
    until("both to be admitted", async || (deployment.other().items(&path).await.len() == 2).then_some(()))
        .await;
    deployment.apis[0].kill().await;
    assert!(lost.answer().await.is_err());

    let mut again = deployment.other().follow(&session, None).await;
    assert_eq!(again.until("session.snapshot").await.data["interactions"], json!([question]));
    let decided = decide(deployment.other(), &session, &question, json!({"decision": "allow"})).await;

    assert_eq!(decided.status, 200, "{}", decided.body);
    let result = caller.result().await;
    assert_eq!(result["content"], "hi\nmore");
    deployment.restart(0).await;
    assert!(no_questions(deployment.client(), &session).await);
    deployment.end().await;
}

on!(a_worker_that_dies_while_it_waits_is_replaced_by_one_that_asks_anew: Distributed);
async fn a_worker_that_dies_while_it_waits_is_replaced_by_one_that_asks_anew(kind: Kind) {
    let options = Options { workers: 1, lease: "2s", ..Options::default() };
    let mut deployment = Deployment::with(kind, options).await;
    let session = deployment.client().session_with("asking").await;
    let mut events = deployment.client().follow(&session, None).await;
    let answer = deployment.client().waiting_with("asking", &session, SAY);
    let first = events.until("interaction.requested").await.data["interaction"].clone();

    deployment.workers[0].kill().await;
    deployment.add_worker();
    let requested = events.until("interaction.requested").await.data;

    let second = &requested["interaction"];
    assert_eq!(requested["attempt"], 2);
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["payload"], second["payload"]);
    let client = deployment.client();
    assert_eq!(&client.asked(&session).await, second);
    let old = decide(client, &session, &first, json!({"decision": "allow"})).await;
    assert_eq!(old.code(), "409 INTERACTION_RESOLVED");
    assert_eq!(decide(client, &session, second, json!({"decision": "allow"})).await.status, 200);
    let result = answer.result().await;
    assert_eq!((text(&result["content"]).trim(), &result["iterations"]), ("hi", &json!(2)));
    assert_eq!(client.roles(&session).await, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(deployment.oracle.requests().len(), 2, "what the model had said was not asked for again");
    deployment.end().await;
}

on!(an_answer_to_a_worker_that_is_dead_counts_for_the_next_one: Distributed);
async fn an_answer_to_a_worker_that_is_dead_counts_for_the_next_one(kind: Kind) {
    for agent in ["asking", "tooled"] {
        let options = Options { workers: 1, lease: "4s", ..Options::default() };
        let mut deployment = Deployment::with(kind, options).await;
        let client = deployment.client().clone();
        let session = client.session_with(agent).await;
        let message = if agent == "asking" { SAY } else { "ask: which one?" };
        let caller = client.waiting_with(agent, &session, message);
        let asked = client.asked(&session).await;

        deployment.workers[0].kill().await;
        let answer = json!({"decision": "allow", "message": "the blue one"});
        assert_eq!(decide(&client, &session, &asked, answer).await.status, 200);
        deployment.add_worker();

        let content = text(&caller.result().await["content"]);
        assert_eq!(content.trim(), if agent == "asking" { "hi" } else { "the blue one" });
        assert!(no_questions(&client, &session).await, "it is asked once");
        deployment.end().await;
    }
}

async fn decide(client: &Client, session: &str, question: &Value, answer: Value) -> Answer {
    client.decide(session, question, &answer).await
}

async fn no_questions(client: &Client, session: &str) -> bool {
    client.items(&format!("/sessions/{session}/interactions")).await.is_empty()
}
