//! `cargo xtask claude`: the tests of the `claude-cli` engine, against the pinned CLI or the newest release.

use std::process::ExitCode;

use anyhow::Result;

use crate::install::{self, Missing};
use crate::services::{CLAUDE, CLAUDE_SDK, MCP_EVERYTHING};
use crate::{npm, sh};

/// The targets of the crate `engines` that run the real CLI.
const TESTS: [&str; 2] = ["claude", "transcript"];

/// Runs the tests of the `claude-cli` engine. By hand: it tells whether a newer release still does what we rely on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install the newest release beside the pinned one, and test with that.
    #[arg(long)]
    newest: bool,
    /// More for nextest, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let pinned = npm::packages(Missing::Install)?;
    let mcp = pinned.mcp_everything()?;
    let packages = if args.newest { npm::newest_claude()? } else { pinned };
    let (claude, sdk) = (packages.claude()?, packages.claude_sdk()?);
    println!("testing with {}", sh::output(sh::command(&claude).arg("--version"))?.trim());
    let mut command = match install::NEXTEST.get(Missing::Install)? {
        Some(nextest) => sh::command(nextest),
        None => sh::cargo(),
    };
    command.args(["nextest", "run", "-p", "roundhouse-engines"]);
    for test in TESTS {
        command.args(["--test", test]);
    }
    let command = command.args(&args.more).env(CLAUDE, claude).env(CLAUDE_SDK, sdk).env(MCP_EVERYTHING, mcp);
    Ok(sh::exit_code_of(sh::run_attached(command)?))
}
