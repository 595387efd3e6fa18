//! What an idle listener costs.

use anyhow::{Result, bail};
use futures::StreamExt;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::deployment::Deployment;

/// Holds many idle session streams and reports the memory of the process that serves them.
pub(crate) async fn report(deployment: &Deployment, counts: &[usize]) -> Result<()> {
    println!("\n| idle streams | memory before MiB | with them MiB | KiB per stream |\n|---|---|---|---|");
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
    for &count in counts {
        let before = deployment.api_memory_kib()?;
        let mut opening = JoinSet::new();
        let mut open = Vec::with_capacity(count);
        for _ in 0..count {
            let (http, base) = (http.clone(), deployment.url().to_owned());
            opening.spawn(async move {
                let created: Value = serde_json::from_str(
                    &http
                        .post(format!("{base}/sessions"))
                        .header("content-type", "application/json")
                        .body("{\"agent\":\"bench\"}")
                        .send()
                        .await?
                        .text()
                        .await?,
                )?;
                let Some(id) = created["id"].as_str() else { bail!("{created}") };
                let stream = http.get(format!("{base}/sessions/{id}/events")).send().await?;
                let mut bytes = stream.bytes_stream();
                // The snapshot: from here on the stream is idle.
                if bytes.next().await.is_none() {
                    bail!("a stream ended");
                }
                Ok(bytes)
            });
            if 64 <= opening.len()
                && let Some(stream) = opening.join_next().await
            {
                open.push(stream??);
            }
        }
        while let Some(stream) = opening.join_next().await {
            open.push(stream??);
        }
        let after = deployment.api_memory_kib()?;
        print(count, before, after);
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a report for people")]
fn print(count: usize, before: u64, after: u64) {
    let (before, after) = (before as f64, after as f64);
    println!(
        "| {count} | {:.0} | {:.0} | {:.1} |",
        before / 1024.0,
        after / 1024.0,
        (after - before) / count as f64
    );
}
