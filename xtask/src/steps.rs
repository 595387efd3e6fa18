//! The checks as steps: a heading, a program or a function, the time it took, and a table of all at the end.
//!
//! A step that fails does not keep the next one from running, so that one run shows all that is wrong.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::install::{self, Missing};
use crate::{sh, tidy};

/// What a step came to.
enum Outcome {
    Passed,
    Failed,
    /// And why.
    Skipped(String),
}

/// The steps of one run.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Outcome, Duration)>,
}

impl Steps {
    /// Runs a function as a step. Fails only when a signal has told us to end.
    pub(crate) fn run(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step();
        sh::check_interrupted()?;
        let took = start.elapsed();
        let outcome = match outcome {
            Ok(()) => Outcome::Passed,
            Err(error) => {
                println!("{error:#}");
                Outcome::Failed
            }
        };
        let word = if matches!(outcome, Outcome::Passed) { "ok" } else { "FAILED" };
        println!("== {name}: {word} after {:.1} s", took.as_secs_f64());
        self.done.push((name.to_owned(), outcome, took));
        Ok(())
    }

    /// Runs a command as a step named like it.
    pub(crate) fn command(&mut self, command: &mut Command) -> Result<()> {
        let name = sh::shown(command);
        self.run(&name, || {
            let status = sh::run(command)?;
            ensure!(status.success(), "{status}");
            Ok(())
        })
    }

    /// Notes a step that is not run.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        println!("\n== {name}: SKIPPED, {reason}");
        self.done.push((name.to_owned(), Outcome::Skipped(reason.to_owned()), Duration::ZERO));
    }

    /// Prints what all steps came to; the exit code says whether all that ran have passed.
    pub(crate) fn close(self) -> ExitCode {
        println!();
        let mut failed = false;
        for (name, outcome, took) in &self.done {
            let word = match outcome {
                Outcome::Passed => "ok",
                Outcome::Failed => "FAILED",
                Outcome::Skipped(_) => "SKIPPED",
            };
            failed |= matches!(outcome, Outcome::Failed);
            let reason =
                if let Outcome::Skipped(reason) = outcome { format!(": {reason}") } else { String::new() };
            println!("{:>7.1} s  {word:<7}  {name}{reason}", took.as_secs_f64());
        }
        if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Whether the advisories, whose database has to be fetched, are checked too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advisories {
    Check,
    Leave,
}

impl Advisories {
    /// From the flag `--advisories`.
    pub(crate) fn from_flag(advisories: bool) -> Self {
        if advisories { Self::Check } else { Self::Leave }
    }
}

/// Formatting, lints, tidiness, dependencies.
pub(crate) fn lint(steps: &mut Steps, missing: Missing, advisories: Advisories) -> Result<()> {
    steps.command(sh::cargo().args(["fmt", "--all", "--check"]))?;
    steps.command(sh::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    steps.run("tidy", tidy::check)?;
    deny(steps, missing, advisories)
}

fn deny(steps: &mut Steps, missing: Missing, advisories: Advisories) -> Result<()> {
    let mut checks = vec!["licenses", "bans", "sources"];
    if advisories == Advisories::Check {
        checks.push("advisories");
    } else {
        steps.skip("deny advisories", "their database has to be fetched; --advisories does");
    }
    let program = match install::DENY.get(missing) {
        Ok(Some(program)) => program,
        Ok(None) => {
            steps.skip("deny", "cargo-deny is missing, and --no-install was given");
            return Ok(());
        }
        Err(error) => return steps.run("deny", || Err(error)),
    };
    steps.command(sh::command(program).args(["--log-level", "error", "check"]).args(checks))
}
