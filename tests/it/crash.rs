//! T2: processes that are killed in the middle of their work.

use std::time::Instant;

use roundhouse_oracle::most_at_once;
use serde_json::{Value, json};

use crate::support::{COUNTED, Deployment, Kind, LONG, Load, MOMENT, Options, SseEvent, note, on};

fn short_lease() -> Options {
    Options { workers: 1, lease: "2s", ..Options::default() }
}

/// The attempts that a stream tells of.
fn attempts(events: &[SseEvent]) -> Vec<&Value> {
    events.iter().filter(|event| event.name == "turn.started").map(|event| &event.data["attempt"]).collect()
}

on!(a_killed_worker_is_taken_over_by_another: Distributed);
async fn a_killed_worker_is_taken_over_by_another(kind: Kind) {
    let mut deployment = Deployment::with(kind, short_lease()).await;
    let session = deployment.client().new_session().await;
    let mut of_session = deployment.client().follow(&session, None).await;
    let message = format!("first {LONG}");
    let answer = deployment.client().chat_waiting(&session, &message);
    of_session.until_it_speaks(1).await;
    let mut stream = deployment.other().stream(None, LONG).await;
    stream.until_it_speaks(1).await;
    deployment.add_worker();
    deployment.await_agent().await;

    deployment.workers[0].kill().await;
    let killed = Instant::now();
    of_session.until_it_speaks(2).await;
    note(&format!("taken over {:?} after the kill; the lease is 2 s", killed.elapsed()));
    let mut events = stream.until_it_speaks(2).await;
    deployment.oracle.hurry();

    let answer = answer.result().await;
    assert_eq!(answer["content"], COUNTED);
    events.extend(stream.all().await);
    assert_eq!(attempts(&events), [2]);
    let ends: Vec<_> = events.iter().filter(|event| ["done", "error"].contains(&&*event.name)).collect();
    assert_eq!((ends.len(), &*ends[0].name, &ends[0].data["content"]), (1, "done", &json!(COUNTED)));
    for result in [&answer, &ends[0].data] {
        let job = deployment.client().ended(result["jobId"].as_str().unwrap()).await;
        assert_eq!((&job["attempt"], &job["result"]), (&json!(2), result));
    }
    let user = format!("user: {message}");
    assert_eq!(deployment.client().messages(&session).await, [user, format!("assistant: {COUNTED}")]);
    let requests = deployment.requests_of(&message);
    assert_eq!((requests.len(), most_at_once(&requests)), (2, 1));
    deployment.end().await;
}

on!(without_any_worker_callers_wait_for_the_next: Distributed);
async fn without_any_worker_callers_wait_for_the_next(kind: Kind) {
    let mut deployment = Deployment::with(kind, Options { workers: 2, ..short_lease() }).await;
    let session = deployment.client().new_session().await;
    let mut of_session = deployment.other().follow(&session, None).await;
    let running = deployment.client().chat_waiting(&session, LONG);
    of_session.until_it_speaks(1).await;
    let injected = deployment.other().chat_waiting(&session, "say more");
    while of_session.until("chat.user_message").await.data["content"] != "say more" {}

    deployment.kill_workers().await;
    tokio::time::sleep(MOMENT).await;
    assert!(!running.is_over() && !injected.is_over());
    deployment.add_worker();
    of_session.until_it_speaks(2).await;
    deployment.oracle.hurry();

    let (running, injected) = (running.result().await, injected.result().await);
    assert_eq!((&running["content"], &injected["content"]), (&json!(COUNTED), &json!("more")));
    assert_eq!((&running["injected"], &injected["injected"]), (&json!(false), &json!(true)));
    deployment.end().await;
}

on!(a_turn_whose_workers_all_die_fails_and_the_session_goes_on: Distributed);
async fn a_turn_whose_workers_all_die_fails_and_the_session_goes_on(kind: Kind) {
    let env = vec![("ROUNDHOUSE_MAX_ATTEMPTS", "2".to_owned())];
    let mut deployment = Deployment::with(kind, Options { env, ..short_lease() }).await;
    let session = deployment.client().new_session().await;
    let mut of_session = deployment.other().follow(&session, None).await;
    let answer = deployment.client().chat_waiting(&session, LONG);
    for attempt in 1..=2 {
        of_session.until_it_speaks(attempt).await;
        deployment.kill_workers().await;
        deployment.add_worker();
    }
    let failed = of_session.until("turn.failed").await;
    let answer = answer.answer().await.unwrap();

    assert_eq!(answer.code(), "502 WORKER_LOST");
    assert_eq!(failed.data["problem"]["code"], "WORKER_LOST");
    let job = deployment.client().ended(answer.problem()["jobId"].as_str().unwrap()).await;
    assert_eq!((&job["state"], &job["attempt"]), (&json!("failed"), &json!(2)));
    assert_eq!(deployment.client().session(&session).await["status"], "error");
    let next = deployment.other().chat(Some(&session), "say again").await.json();
    assert!(next["content"].as_str().unwrap().ends_with("again"), "{next}");
    assert_eq!(deployment.client().session(&session).await["status"], "idle");
    let messages = deployment.client().messages(&session).await;
    assert_eq!(messages[..2], [format!("user: {LONG}"), "user: say again".to_owned()]);
    assert_eq!(messages.len(), 3);
    deployment.end().await;
}

on!(a_killed_process_answers_after_its_restart: Embedded, EmbeddedPostgres, EmbeddedRedis);
async fn a_killed_process_answers_after_its_restart(kind: Kind) {
    let mut deployment = Deployment::with(kind, short_lease()).await;
    let session = deployment.client().new_session().await;
    let mut of_session = deployment.client().follow(&session, None).await;
    let first = deployment.client().chat_async(Some(&session), LONG).await;
    of_session.until_it_speaks(1).await;
    let second = deployment.client().chat_async(Some(&session), "say more").await;

    deployment.apis[0].kill().await;
    deployment.restart(0).await;

    for (job, content, attempt) in [(first, COUNTED, 2), (second, "more", 1)] {
        let job = deployment.hurried(job["jobId"].as_str().unwrap()).await;
        assert_eq!((&job["result"]["content"], &job["attempt"]), (&json!(content), &json!(attempt)));
    }
    let user = format!("user: {LONG}");
    let answer = format!("assistant: {COUNTED}");
    let messages = deployment.client().messages(&session).await;
    assert_eq!(messages, [&*user, "user: say more", &*answer, "assistant: more"]);
    deployment.end().await;
}

on!(an_answer_whose_api_was_killed_is_fetched_from_another: Distributed);
async fn an_answer_whose_api_was_killed_is_fetched_from_another(kind: Kind) {
    let mut deployment = Deployment::start(kind).await;
    let session = deployment.other().new_session().await;
    let mut of_session = deployment.other().follow(&session, None).await;
    let caller = deployment.client().chat_waiting(&session, LONG);
    of_session.until_it_speaks(1).await;

    deployment.apis[0].kill().await;
    assert!(caller.answer().await.is_err(), "an answer from a process that was killed");
    deployment.oracle.hurry();

    let jobs = deployment.other().items(&format!("/jobs?sessionId={session}")).await;
    assert_eq!(jobs.len(), 1);
    let job = deployment.other().ended(jobs[0]["id"].as_str().unwrap()).await;
    assert_eq!((&job["result"]["content"], &job["attempt"]), (&json!(COUNTED), &json!(1)));
    assert_eq!(of_session.until("chat.response").await.data["jobId"], job["id"]);
    assert_eq!(deployment.requests_of(LONG).len(), 1);
    deployment.end().await;
}

on!(nothing_is_lost_while_workers_are_killed_one_after_another: Distributed);
async fn nothing_is_lost_while_workers_are_killed_one_after_another(kind: Kind) {
    let env = vec![("ROUNDHOUSE_MAX_ATTEMPTS", "10".to_owned())];
    let options = Options { workers: 2, slots: 4, env, ..short_lease() };
    let mut deployment = Deployment::with(kind, options).await;
    let load = Load::start(&deployment, 4, "slow 0.3", &[]);
    for n in 0..4 {
        load.goes_on().await;
        deployment.workers[n].kill().await;
        deployment.add_worker();
        deployment.await_agent().await;
    }
    load.goes_on().await;
    let efforts = load.end(&deployment).await;
    assert!(efforts.iter().all(|effort| effort.requests <= effort.attempt), "{efforts:?}");
    deployment.end().await;
}
