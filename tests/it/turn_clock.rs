//! How long a turn may work: waiting does not count, and every attempt does.

use std::time::Duration;

use serde_json::json;

use crate::support::{Deployment, Kind, ORACLE, Options, agent, on};

const LIMIT: Duration = Duration::from_secs(10);

/// An agent that asks, and has little time.
fn brief() -> String {
    agent(
        "brief",
        &format!("{ORACLE}/v1"),
        &format!("tools = [\"ask_user\"]\nturn_timeout = \"{}s\"", LIMIT.as_secs()),
    )
}

on!(an_answer_that_comes_after_the_turns_limit_is_in_time: Embedded, Distributed);
async fn an_answer_that_comes_after_the_turns_limit_is_in_time(kind: Kind) {
    let deployment = Deployment::with(kind, Options { agents: brief(), ..Options::default() }).await;
    let client = deployment.client();
    let session = client.session_with("brief").await;
    let caller = client.waiting_with("brief", &session, "ask: which one?");
    let asked = deployment.other().asked(&session).await;

    tokio::time::sleep(LIMIT + Duration::from_secs(1)).await;
    assert!(!caller.is_over(), "the turn waits for a person, however long that takes");
    let answer = json!({"decision": "allow", "message": "the left one"});
    assert_eq!(client.decide(&session, &asked, &answer).await.status, 200);

    assert_eq!(caller.result().await["content"], "the left one");
    deployment.end().await;
}

on!(a_turn_has_one_limit_for_all_its_attempts: EmbeddedPostgres);
async fn a_turn_has_one_limit_for_all_its_attempts(kind: Kind) {
    let env = ["ROUNDHOUSE_SHUTDOWN_GRACE", "ROUNDHOUSE_CANCEL_GRACE"];
    let env = env.map(|variable| (variable, "300ms".to_owned())).to_vec();
    let mut deployment = Deployment::with(kind, Options { env, ..Options::default() }).await;
    let client = deployment.client().clone();
    let (session, mut events) = client.at_work().await;
    events.until("message.delta").await;

    deployment.apis[0].stop().await;
    let mut postgres = deployment.database().connection().await;
    let worked: i64 =
        sqlx::query_scalar("SELECT worked_ms FROM turns").fetch_one(&mut postgres).await.unwrap();
    assert!(worked > 0, "a turn that is handed back leaves its time to the next attempt");
    // As if it had worked until its time was up.
    sqlx::query("UPDATE turns SET worked_ms = 2 * 3600 * 1000").execute(&mut postgres).await.unwrap();
    drop(postgres);
    deployment.restart(0).await;

    let client = deployment.client();
    let job = client.items("/jobs").await[0]["id"].as_str().unwrap().to_owned();
    let ended = client.ended(&job).await;
    assert_eq!((&ended["state"], &ended["sessionId"]), (&json!("failed"), &json!(session)));
    let detail = ended["problem"]["detail"].as_str().unwrap();
    assert!(detail.contains("the turn took longer than"), "{ended}");
    deployment.end().await;
}
