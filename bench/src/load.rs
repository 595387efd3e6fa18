//! Sessions that chat as fast as they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

/// How long one turn may take before the run has failed.
const TURN: Duration = Duration::from_mins(1);

/// A load.
pub(crate) struct Load {
    /// Where to post.
    pub(crate) url: String,
    /// Sessions at once.
    pub(crate) sessions: usize,
    /// Turns in all.
    pub(crate) turns: usize,
}

/// What was measured, in microseconds.
pub(crate) struct Measured {
    first_event: Histogram<u64>,
    first_token: Histogram<u64>,
    done: Histogram<u64>,
    took: Duration,
}

/// The times of one turn.
struct Turn {
    first_event: Duration,
    first_token: Duration,
    done: Duration,
    session: Option<String>,
}

impl Load {
    /// Runs it.
    pub(crate) async fn run(self) -> Result<Measured> {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let left = Arc::new(AtomicUsize::new(self.turns));
        let mut tasks = JoinSet::new();
        let started = Instant::now();
        for n in 0..self.sessions {
            let (http, url, left) = (http.clone(), self.url.clone(), left.clone());
            tasks.spawn(async move {
                let mut turns = Vec::new();
                let mut session = None;
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    // A session is given up after a while: a long context would measure the model.
                    if turns.len() % 20 == 19 {
                        session = None;
                    }
                    let turn = tokio::time::timeout(TURN, chat(&http, &url, session.as_deref(), n)).await??;
                    session.clone_from(&turn.session);
                    turns.push(turn);
                }
                anyhow::Ok(turns)
            });
        }
        let empty = || Histogram::<u64>::new_with_bounds(1, 120_000_000, 3);
        let (mut first_event, mut first_token, mut done) = (empty()?, empty()?, empty()?);
        while let Some(turns) = tasks.join_next().await {
            for turn in turns?? {
                first_event.saturating_record(micros(turn.first_event));
                first_token.saturating_record(micros(turn.first_token));
                done.saturating_record(micros(turn.done));
            }
        }
        Ok(Measured { first_event, first_token, done, took: started.elapsed() })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

async fn chat(http: &reqwest::Client, url: &str, session: Option<&str>, n: usize) -> Result<Turn> {
    let mut body = serde_json::json!({ "message": format!("say hello from {n}") });
    if let Some(session) = session {
        body["sessionId"] = session.into();
    }
    let started = Instant::now();
    let response = http.post(url).header("accept", "text/event-stream").json(&body).send().await?;
    if !response.status().is_success() {
        bail!("{}: {}", response.status(), response.text().await?);
    }
    let (mut first_event, mut first_token, mut text) = (None, None, String::new());
    let mut bytes = response.bytes_stream();
    while let Some(piece) = bytes.next().await {
        text.push_str(&String::from_utf8_lossy(&piece?));
        first_event.get_or_insert_with(|| started.elapsed());
        if first_token.is_none() && text.contains("event: message.delta") {
            first_token = Some(started.elapsed());
        }
        if text.contains("event: done") && text.ends_with("\n\n") {
            break;
        }
    }
    let done = started.elapsed();
    let (Some(first_event), Some(first_token)) = (first_event, first_token) else {
        bail!("no answer in {text:?}");
    };
    if !text.contains("event: done") {
        bail!("no end in {text:?}");
    }
    let session = text.split("\"sessionId\":\"").nth(1).and_then(|rest| rest.split('"').next());
    Ok(Turn { first_event, first_token, done, session: session.map(str::to_owned) })
}

/// The head of a table.
pub(crate) fn header() {
    println!(
        "| sessions | turns/s | first event p50 / p95 / p99 ms | first token p50 / p95 / p99 ms | done p50 / p95 / p99 ms |"
    );
    println!("|---|---|---|---|---|");
}

impl Measured {
    /// A row that compares it with another.
    #[expect(clippy::cast_precision_loss, reason = "a report for people")]
    pub(crate) fn print_beside(&self, waiting: usize, other: &Self) {
        let ms = |p: f64| self.done.value_at_quantile(p) as f64 / 1000.0;
        let rate = self.done.len() as f64 / self.took.as_secs_f64();
        let ratio = ms(0.5) / (other.done.value_at_quantile(0.5) as f64 / 1000.0);
        println!("| {waiting} | {rate:.0} | {:.2} / {:.2} | {ratio:.2} |", ms(0.5), ms(0.99));
    }

    /// A row of the table.
    #[expect(clippy::cast_precision_loss, reason = "a report for people")]
    pub(crate) fn print(&self, sessions: usize) {
        let of = |h: &Histogram<u64>| {
            let ms = |p: f64| h.value_at_quantile(p) as f64 / 1000.0;
            format!("{:.2} / {:.2} / {:.2}", ms(0.5), ms(0.95), ms(0.99))
        };
        let rate = self.done.len() as f64 / self.took.as_secs_f64();
        println!(
            "| {sessions} | {rate:.0} | {} | {} | {} |",
            of(&self.first_event),
            of(&self.first_token),
            of(&self.done)
        );
    }
}
