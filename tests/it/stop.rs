//! T2: processes that are stopped on purpose, as in a deployment of a new version.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{COUNTED, Deployment, Effort, Kind, LONG, Load, Options, on};

fn with_grace(grace: &str) -> Options {
    // A cancel must not take longer than a stop.
    let graces = ["ROUNDHOUSE_SHUTDOWN_GRACE", "ROUNDHOUSE_CANCEL_GRACE"];
    let env = graces.map(|variable| (variable, grace.to_owned())).to_vec();
    Options { slots: 4, env, ..Options::default() }
}

on!(a_process_that_stops_finishes_what_runs: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_process_that_stops_finishes_what_runs(kind: Kind) {
    let mut deployment = Deployment::with(kind, with_grace("10m")).await;
    let client = deployment.client().clone();
    let session = client.new_session().await;
    let mut of_session = client.follow(&session, None).await;
    let answer = client.chat_waiting(&session, LONG);
    of_session.until_it_speaks(1).await;
    let mut stream = client.stream(None, LONG).await;
    stream.until_it_speaks(1).await;

    deployment.apis[0].signal(Signal::SIGTERM);
    deployment.apis[0].logged(&["finishing what runs"]).await;
    deployment.oracle.hurry();

    assert_eq!(answer.result().await["content"], COUNTED);
    assert_eq!(stream.until("done").await.data["content"], COUNTED);
    assert!(deployment.apis[0].wait().await.success());
    deployment.restart(0).await;
    assert_eq!(deployment.client().messages(&session).await.len(), 2);
    deployment.end().await;
}

on!(a_turn_that_outlasts_the_grace_is_handed_to_another_worker: Distributed);
async fn a_turn_that_outlasts_the_grace_is_handed_to_another_worker(kind: Kind) {
    let mut deployment = Deployment::with(kind, with_grace("300ms")).await;
    let session = deployment.client().new_session().await;
    let mut of_session = deployment.client().follow(&session, None).await;
    let answer = deployment.client().chat_waiting(&session, LONG);
    of_session.until_it_speaks(1).await;
    let holder = deployment.holder(&session).await;
    let injected = deployment.other().chat_waiting(&session, "say more");
    while of_session.until("chat.user_message").await.data["content"] != "say more" {}

    deployment.workers[holder].stop().await;
    assert_eq!(of_session.until("turn.started").await.data["attempt"], 1);
    of_session.until_it_speaks(1).await;
    assert_ne!(deployment.holder(&session).await, holder);
    deployment.oracle.hurry();

    for (answer, content) in [(answer, COUNTED), (injected, "more")] {
        let result = answer.result().await;
        let job = deployment.other().ended(result["jobId"].as_str().unwrap()).await;
        assert_eq!((&result["content"], &job["attempt"]), (&json!(content), &json!(1)));
    }
    assert_eq!(deployment.client().messages(&session).await.len(), 4);
    deployment.end().await;
}

on!(a_turn_that_outlasts_the_grace_goes_on_after_the_restart: Embedded, EmbeddedPostgres, EmbeddedRedis);
async fn a_turn_that_outlasts_the_grace_goes_on_after_the_restart(kind: Kind) {
    let mut deployment = Deployment::with(kind, with_grace("300ms")).await;
    let client = deployment.client().clone();
    let session = client.new_session().await;
    let answer = client.chat_waiting(&session, LONG);
    deployment.worker_of(&session).await;
    let mut stream = client.stream(None, LONG).await;
    let streamed = stream.until("job.accepted").await.data["jobId"].as_str().unwrap().to_owned();
    stream.until_it_speaks(1).await;

    deployment.apis[0].stop().await;
    let later = answer.answer().await.expect("word of where the answer will be");
    assert_eq!(later.status, 202, "{}", later.body);
    assert!(stream.all().await.iter().all(|event| event.name != "done" && event.name != "error"));
    deployment.restart(0).await;
    for job in [later.json()["jobId"].as_str().unwrap(), &streamed] {
        let job = deployment.hurried(job).await;
        assert_eq!((&job["result"]["content"], &job["attempt"]), (&json!(COUNTED), &json!(1)));
    }
    deployment.end().await;
}

on!(a_second_signal_ends_a_process_at_once: Embedded, Distributed);
async fn a_second_signal_ends_a_process_at_once(kind: Kind) {
    let mut deployment = Deployment::with(kind, with_grace("10m")).await;
    let session = deployment.client().new_session().await;
    let job =
        deployment.client().chat_async(Some(&session), LONG).await["jobId"].as_str().unwrap().to_owned();
    let pid = deployment.worker_of(&session).await.pid();
    let process =
        deployment.workers.iter_mut().chain(&mut deployment.apis).find(|one| one.pid() == pid).unwrap();

    process.signal(Signal::SIGTERM);
    process.logged(&["finishing what runs"]).await;
    process.signal(Signal::SIGTERM);
    assert!(process.wait().await.success());
    if kind == Kind::Embedded {
        deployment.restart(0).await;
    }
    let job = deployment.hurried(&job).await;
    assert_eq!((&job["result"]["content"], &job["attempt"]), (&json!(COUNTED), &json!(1)));
    deployment.end().await;
}

on!(workers_that_are_replaced_one_by_one_are_no_outage: Distributed);
async fn workers_that_are_replaced_one_by_one_are_no_outage(kind: Kind) {
    let efforts = replace_workers(Deployment::with(kind, with_grace("30s")).await).await;
    assert!(efforts.iter().all(Effort::is_single), "{efforts:?}");
}

on!(workers_that_are_replaced_without_patience_are_no_outage: Distributed);
async fn workers_that_are_replaced_without_patience_are_no_outage(kind: Kind) {
    let efforts = replace_workers(Deployment::with(kind, with_grace("50ms")).await).await;
    assert!(efforts.iter().all(|effort| effort.attempt == 1), "{efforts:?}");
}

async fn replace_workers(mut deployment: Deployment) -> Vec<Effort> {
    let load = Load::start(&deployment, 4, "slow 0.5", &[]);
    for n in 0..2 {
        load.goes_on().await;
        deployment.workers[n].stop().await;
        for client in &deployment.clients {
            let agents = client.items("/agents").await;
            let agent = agents.iter().find(|agent| agent["name"] == "oracle").unwrap();
            assert_eq!(agent["available"], true);
        }
        load.goes_on().await;
        deployment.add_worker();
        deployment.await_agent().await;
    }
    load.goes_on().await;
    let efforts = load.end(&deployment).await;
    deployment.end().await;
    efforts
}
