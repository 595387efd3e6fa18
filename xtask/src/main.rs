//! Project commands, run as `cargo xtask COMMAND`.
//!
//! One module per command, with its arguments beside its `run`; what several commands need is in [`sh`] (running
//! programs), [`install`] (getting them) and [`steps`] (the checks). A command returns its exit code. All that it
//! started is ended by the `Drop` of a guard, so that errors, panics and signals clean up like a good end does.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "these are commands for a terminal")]

mod bench;
mod claude;
mod install;
mod lint;
mod npm;
mod pypi;
mod services;
mod sh;
mod steps;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Project commands of Roundhouse.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Test(test::Args),
    Lint(lint::Args),
    /// Checks what neither compiler nor linter checks: sizes, directions, the suite's coverage, words, lock files.
    Tidy,
    Services(services::Args),
    Bench(bench::Args),
    Claude(claude::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = sh::catch_signals().and_then(|()| match cli.command {
        Command::Test(args) => test::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Tidy => tidy::run(),
        Command::Services(args) => services::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Claude(args) => claude::run(&args),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        sh::interrupted().map_or(ExitCode::FAILURE, sh::exit_code_of_signal)
    })
}
