//! What callers that wait cost the others.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::deployment::Deployment;
use crate::load::Load;

/// Sessions that chat beside those who wait.
const SESSIONS: usize = 8;
/// How long callers may take to be admitted.
const ADMITTED: Duration = Duration::from_mins(2);

/// Measures the same load without and with many callers that wait for a session which is at work all the time.
pub(crate) async fn report(deployment: &Deployment, waiting: &[usize], turns: usize) -> Result<()> {
    println!(
        "\n| callers that wait | turns/s of {SESSIONS} others | their done p50 / p99 ms | p50 against nobody waiting |"
    );
    println!("|---|---|---|---|");
    let load = || Load { url: format!("{}/agents/bench/chat", deployment.url()), sessions: SESSIONS, turns };
    let alone = load().run().await?;
    alone.print_beside(0, &alone);
    for &count in waiting {
        let crowd = Crowd::gather(deployment.url(), count).await?;
        load().run().await?.print_beside(count, &alone);
        crowd.dismiss().await?;
    }
    Ok(())
}

/// Callers that wait for answers of one session.
struct Crowd {
    http: reqwest::Client,
    session: String,
    callers: JoinSet<Result<()>>,
}

impl Crowd {
    async fn gather(url: &str, count: usize) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
        let chat = format!("{url}/agents/bench/chat");
        let busy = json!({ "message": "slow 600" });
        let accepted: Value =
            http.post(&chat).header("prefer", "respond-async").json(&busy).send().await?.json().await?;
        let id = accepted["sessionId"].as_str().context("a session")?;
        let mut callers = JoinSet::new();
        for n in 0..count {
            let (http, chat) = (http.clone(), chat.clone());
            let body = json!({ "sessionId": id, "onBusy": "enqueue", "message": format!("say {n}") });
            callers.spawn(async move {
                http.post(chat).json(&body).send().await?;
                Ok(())
            });
        }
        let crowd = Self { session: format!("{url}/sessions/{id}"), http, callers };
        tokio::time::timeout(ADMITTED, crowd.all_wait(count))
            .await
            .context("the callers were not admitted")??;
        Ok(crowd)
    }

    async fn all_wait(&self, count: usize) -> Result<()> {
        loop {
            let session: Value = self.http.get(&self.session).send().await?.json().await?;
            if session["messageCount"].as_u64().is_some_and(|stored| count as u64 <= stored) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn dismiss(mut self) -> Result<()> {
        let deleted = self.http.delete(format!("{}?force=true", self.session)).send().await?;
        if !deleted.status().is_success() {
            bail!("{}", deleted.text().await?);
        }
        while let Some(caller) = self.callers.join_next().await {
            caller??;
        }
        Ok(())
    }
}
