//! Measures Roundhouse from outside, on this machine, with the load generator and the oracle beside it.
//!
//! Absolute numbers belong to the machine; what tells is the ratio to the same run's *floor*: a bare handler that streams
//! from the oracle, and the bare three transactions. `cargo xtask bench` builds and runs this with a Postgres and a Redis.
#![expect(clippy::print_stdout, reason = "a report is what this is for")]

mod deployment;
mod floor;
mod idle;
mod load;
mod queue;
mod waiters;

use anyhow::Result;
use clap::Parser;

use deployment::{Deployment, Kind};
use load::Load;

/// What to measure.
#[derive(Debug, Parser)]
struct Arguments {
    /// The release binary of Roundhouse.
    #[arg(long, default_value = "target/release/roundhouse")]
    binary: std::path::PathBuf,
    /// Sessions at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    sessions: Vec<usize>,
    /// Turns measured at each step.
    #[arg(long, default_value_t = 3_000)]
    turns: usize,
    /// Idle streams to hold.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    idle: Vec<usize>,
    /// Callers that wait while others chat.
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    waiting: Vec<usize>,
    /// Only the deployment of this name.
    #[arg(long)]
    only: Option<Kind>,
    /// A Postgres where a database may be created; without it, no distributed deployment.
    #[arg(long, env = "ROUNDHOUSE_TEST_POSTGRES_URL")]
    postgres: Option<String>,
    /// A Redis.
    #[arg(long, env = "ROUNDHOUSE_TEST_REDIS_URL")]
    redis: Option<String>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(&arguments))
}

async fn run(arguments: &Arguments) -> Result<()> {
    let oracle = deployment::oracle(&arguments.binary).await?;
    println!("## Floor\n");
    println!("A bare handler that streams from the oracle:\n");
    load::header();
    let bare = floor::Bare::start(oracle.url()).await?;
    for &sessions in &arguments.sessions {
        let load = Load { url: bare.url(), sessions, turns: turns(arguments, sessions) };
        load.run().await?.print(sessions);
    }
    println!("\nThe bare three transactions, turns per second:\n");
    floor::transactions(arguments.postgres.as_deref(), &arguments.sessions).await?;
    println!("\nPush to handler start, alone:\n");
    queue::report(arguments.redis.as_deref()).await?;

    for kind in [Kind::Embedded, Kind::Distributed] {
        if arguments.only.is_some_and(|only| only != kind) {
            continue;
        }
        let services = (arguments.postgres.as_deref(), arguments.redis.as_deref());
        let Some(deployment) = Deployment::start(&arguments.binary, kind, oracle.url(), services).await?
        else {
            println!("\n## {kind:?}: no Postgres and Redis, not measured");
            continue;
        };
        println!("\n## {kind:?}\n");
        load::header();
        for &sessions in &arguments.sessions {
            let url = format!("{}/agents/bench/chat", deployment.url());
            Load { url, sessions, turns: turns(arguments, sessions) }.run().await?.print(sessions);
        }
        waiters::report(&deployment, &arguments.waiting, arguments.turns).await?;
        idle::report(&deployment, &arguments.idle).await?;
    }
    Ok(())
}

/// Fewer turns where one session does them one after another.
fn turns(arguments: &Arguments, sessions: usize) -> usize {
    if sessions == 1 { arguments.turns.div_ceil(3) } else { arguments.turns }
}
