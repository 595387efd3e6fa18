//! `cargo xtask lint`: all that can be checked without running the product.

use std::process::ExitCode;

use anyhow::Result;

use crate::install::Missing;
use crate::steps::{self, Advisories, Steps};

/// Checks formatting, lints, tidiness and dependencies.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Skip what needs a missing tool instead of installing it.
    #[arg(long)]
    no_install: bool,
    /// Check for known vulnerabilities too, which fetches their database.
    #[arg(long)]
    advisories: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut steps = Steps::default();
    let (missing, advisories) = (Missing::from_flag(args.no_install), Advisories::from_flag(args.advisories));
    steps::lint(&mut steps, missing, advisories)?;
    Ok(steps.close())
}
