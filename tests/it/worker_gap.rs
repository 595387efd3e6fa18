//! All workers are gone for a moment: what is sent meanwhile is answered by the next one.

use serde_json::json;

use crate::support::{Deployment, Kind, Options, on, text, until};

fn options(gap: &str) -> Options {
    let env = vec![("ROUNDHOUSE_WORKER_GAP", gap.to_owned())];
    Options { lease: "1s", env, ..Options::default() }
}

/// Stops all workers as a deployment does, and waits until no api takes one for alive.
async fn stop_workers(deployment: &mut Deployment) {
    for worker in &mut deployment.workers {
        worker.stop().await;
    }
    for client in &deployment.clients {
        until("the workers to be gone", async || {
            (client.get("/workers").await.json()["items"] == json!([])).then_some(())
        })
        .await;
    }
}

on!(a_chat_between_two_workers_is_answered: Distributed);
async fn a_chat_between_two_workers_is_answered(kind: Kind) {
    let mut deployment = Deployment::with(kind, options("5m")).await;
    let session = deployment.client().new_session().await;
    deployment.client().chat(Some(&session), "X = 5").await;
    stop_workers(&mut deployment).await;
    // Also an api that was started meanwhile knows of them.
    deployment.add_api("api").await;
    let mut jobs = Vec::new();
    for client in &deployment.clients {
        let agents = client.items("/agents").await;
        let agent = agents.iter().find(|agent| agent["name"] == "oracle").expect("an agent that is known");
        assert_eq!(agent["available"], json!(false));
        assert!(text(&agent["reason"]).contains("no live worker"), "{agent}");
        jobs.push(client.chat_async(None, "say hi").await);
    }
    jobs.push(deployment.other().chat_async(Some(&session), "what is x").await);

    deployment.add_worker();
    let said: Vec<_> = ["hi"; 3].into_iter().chain(["X = 5"]).collect();
    for (job, said) in jobs.iter().zip(said) {
        let job = deployment.client().ended(job["jobId"].as_str().unwrap()).await;
        assert_eq!(job["result"]["content"], said);
    }
    deployment.end().await;
}

on!(a_chat_long_after_the_last_worker_is_refused: Distributed);
async fn a_chat_long_after_the_last_worker_is_refused(kind: Kind) {
    let mut deployment = Deployment::with(kind, options("1s")).await;
    stop_workers(&mut deployment).await;
    for client in &deployment.clients {
        until("the agent to be given up", async || {
            let agents = client.items("/agents").await;
            let agent = agents.iter().find(|agent| agent["name"] == "oracle")?;
            (agent["reason"] == "no live worker has this agent").then_some(())
        })
        .await;
        let refused = client.chat(None, "say hi").await;
        assert_eq!(refused.code(), "503 ENGINE_UNAVAILABLE");
        assert!(refused.headers.contains_key("retry-after"));
    }
    deployment.add_worker();
    deployment.await_agent().await;
    assert_eq!(deployment.client().chat(None, "say hi").await.json()["content"], "hi");
    deployment.end().await;
}
