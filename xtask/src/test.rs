//! `cargo xtask test`: everything that has to hold, from a bare machine; what continuous integration runs.

use std::process::ExitCode;

use anyhow::Result;

use crate::install::{self, Missing};
use crate::services::Services;
use crate::sh;
use crate::steps::{self, Advisories, Steps};
use crate::tidy;

/// Installs what is missing, checks formatting, lints, tidiness, dependencies and documentation, and runs all tests
/// against a Postgres and a Redis of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail, skip or do without instead of installing what is missing.
    #[arg(long)]
    no_install: bool,
    /// Check for known vulnerabilities too, which fetches their database.
    #[arg(long)]
    advisories: bool,
    /// Run the tests, and none of the checks.
    #[arg(long)]
    only_tests: bool,
    /// Run only tests whose names contain this; may be repeated.
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// More for nextest, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let missing = Missing::from_flag(args.no_install);
    let mut steps = Steps::default();
    if missing == Missing::Install {
        steps.run("tools", install::all)?;
    }
    if !args.only_tests {
        steps::lint(&mut steps, missing, Advisories::from_flag(args.advisories))?;
        steps.command(
            sh::cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        )?;
        if tidy::has_doc_tests()? {
            steps.command(sh::cargo().args(["test", "--doc", "--workspace"]))?;
        }
    }
    // Only now, so that nothing runs beside the compiler for minutes.
    let mut services = None;
    steps.run("services", || {
        services = Some(Services::start(missing)?);
        Ok(())
    })?;
    match &services {
        Some(services) => tests(&mut steps, args, missing, services)?,
        None => steps.skip("tests", "the services that they need did not start"),
    }
    Ok(steps.close())
}

fn tests(steps: &mut Steps, args: &Args, missing: Missing, services: &Services) -> Result<()> {
    let nextest = install::NEXTEST.get(missing).unwrap_or_else(|error| {
        println!("{error:#}");
        None
    });
    let mut command = if let Some(program) = nextest {
        let mut command = sh::command(program);
        command.args(["nextest", "run", "--workspace"]);
        command
    } else {
        println!("without cargo-nextest: `cargo test` runs the tests, with no limit on their time");
        let mut command = sh::cargo();
        command.args(["test", "--workspace", "--all-targets", "--no-fail-fast"]);
        command
    };
    steps.command(services.name_to(command.args(&args.filter).args(&args.more)))
}
