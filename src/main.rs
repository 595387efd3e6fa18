//! The `roundhouse` binary: the commands, the configuration, and what puts the parts together.

mod agents;
mod cli;
mod client;
mod commands;
mod config;
mod hardening;
mod http;
mod patience;
mod terminal;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // What is wrong with it is told once there is a log.
    let _ = hardening::close();
    hardening::make_files_private();
    let cli = cli::Cli::parse();
    // Fails only where one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::complain(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(commands::run(cli));
    // A name that is still being looked up, or a file that is still being read, keeps nobody waiting.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    code
}
