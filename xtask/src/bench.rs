//! `cargo xtask bench`: measures a release build beside a private Postgres and Redis.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::install::Missing;
use crate::services::Services;
use crate::sh;

/// Measures turns per second, latencies and memory of both deployments, beside what the machine does without them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail instead of installing what is missing.
    #[arg(long)]
    no_install: bool,
    /// Arguments for the benchmark itself, after `--`; `-- --help` lists them.
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let build = ["build", "--release", "--package", "roundhouse", "--package", "roundhouse-bench"];
    sh::run_ok(sh::cargo().args(build))?;
    let services = Services::start(Missing::from_flag(args.no_install))?;
    let mut bench = sh::command(sh::root().join("target/release/roundhouse-bench"));
    Ok(sh::exit_code_of(sh::run_attached(services.name_to(bench.args(&args.arguments)))?))
}
