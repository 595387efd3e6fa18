//! A deployment of the real binary for one test, and a client for it.

mod agents;
mod claude;
mod client;
mod cuts;
mod deployment;
mod engines;
mod faults;
mod load;
mod native;
mod pgbouncer;
mod process;
mod seen;
mod services;
mod talk;
mod turns;

pub(crate) use agents::{Gate, Sleepers, names_of};
pub(crate) use claude::{ORACLE, claude_agent, cli_agent, program};
pub(crate) use client::{Answer, Client, Events, SseEvent};
pub(crate) use deployment::{Deployment, Kind, MOMENT, Options, agent, text};
pub(crate) use engines::{Engine, on_every_engine};
pub(crate) use load::{Effort, Load};
pub(crate) use native::{native_of, processes_of};
pub(crate) use pgbouncer::SERVERS as PGBOUNCER_SERVERS;
pub(crate) use process::Process;
pub(crate) use seen::{children, clis, command_lines, nothing_runs_for, started_for};
pub(crate) use services::{RedisServer, claude};
pub(crate) use talk::{Relay, Talk};
pub(crate) use turns::{COUNTED, LONG, Waiting};

use std::future::Future;
use std::time::Duration;

use roundhouse_oracle::RecordedRequest;

/// How long anything may take that ought to happen at once. Long, because the machine may be slow.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// Waits for something that happens by itself.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(SOON, future).await else { panic!("waited in vain for {what}") };
    value
}

/// Says what was measured, where somebody looks at the output of a test.
#[expect(clippy::print_stdout, reason = "for whoever runs the test")]
pub(crate) fn note(text: &str) {
    println!("{text}");
}

/// Asks again and again until the answer is there: for what no event tells.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    soon(what, async {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

/// The message that a model was sent last.
pub(crate) fn newest(request: &RecordedRequest) -> String {
    let body = request.json();
    let messages = body["messages"].as_array().expect("messages");
    text(&messages.last().expect("a message")["content"])
}

/// Stamps a test for the deployments that are named.
macro_rules! on {
    ($name:ident: $($kind:ident),+ $(,)?) => {
        mod $name {
            $(
                #[expect(non_snake_case, reason = "named after the deployment")]
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $kind() {
                    super::$name($crate::support::Kind::$kind).await;
                }
            )+
        }
    };
}
pub(crate) use on;
