//! The commands.

mod api;
mod config;
mod health;
mod migrate;
mod oracle;
mod up;
mod worker;

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{ApiFlags, Cli, Command, Common, WorkerFlags};
use crate::client;
use crate::config::{Environment, Flag, Loaded, Role, load};
use crate::hardening;
use crate::terminal::{chain, complain};
use crate::wiring::StartError;

/// The exit code where the configuration is wrong, the same as for wrong flags.
const USAGE: u8 = 2;

/// Runs the command and says what became of it.
pub(crate) async fn run(cli: Cli) -> ExitCode {
    let Cli { common, command } = cli;
    let command = command.unwrap_or(Command::Up { api: ApiFlags::default(), worker: WorkerFlags::default() });
    let done = match command {
        Command::Up { api, worker } => Box::pin(up(&common, api, worker)).await,
        Command::Api(api) => Box::pin(serve(&common, api)).await,
        Command::Worker(worker) => Box::pin(work(&common, worker)).await,
        Command::Migrate => migrate(&common).await,
        Command::Config { example: true } => {
            config::print_example();
            Ok(())
        }
        Command::Config { example: false } => read(&common, []).map(|loaded| config::print(&loaded)),
        Command::Oracle { listen } => oracle(&common, listen).await,
        Command::Health { url } => match server(&common, url) {
            Ok(url) => return health::run(&url).await,
            Err(error) => Err(error),
        },
        Command::Chat(args) => match server(&common, args.url.clone()) {
            Ok(url) => return Box::pin(client::chat(&url, args)).await,
            Err(error) => Err(error),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&chain(&error));
            ExitCode::from(if matches!(error, StartError::Config(_)) { USAGE } else { 1 })
        }
    }
}

async fn up(common: &Common, api: ApiFlags, worker: WorkerFlags) -> Result<(), StartError> {
    let loaded = read(common, [listen(api), slots(worker)])?;
    loaded.check_role(Role::Up)?;
    loaded.init_log()?;
    hardening::warn_where_open();
    up::run(loaded).await
}

async fn serve(common: &Common, api: ApiFlags) -> Result<(), StartError> {
    let loaded = read(common, [listen(api)])?;
    loaded.check_role(Role::Api)?;
    loaded.init_log()?;
    api::run(loaded).await
}

async fn work(common: &Common, worker: WorkerFlags) -> Result<(), StartError> {
    let loaded = read(common, [slots(worker)])?;
    loaded.check_role(Role::Worker)?;
    loaded.init_log()?;
    hardening::warn_where_open();
    worker::run(loaded).await
}

async fn migrate(common: &Common) -> Result<(), StartError> {
    let loaded = read(common, [])?;
    loaded.init_log()?;
    migrate::run(&loaded).await
}

async fn oracle(common: &Common, listen: std::net::SocketAddr) -> Result<(), StartError> {
    let loaded = read(common, [])?;
    loaded.init_log()?;
    oracle::run(listen).await
}

/// Where the server is: where the flag says, or where this configuration would have it listen.
fn server(common: &Common, url: Option<String>) -> Result<String, StartError> {
    match url {
        Some(url) => Ok(url),
        None => Ok(read(common, [])?.config.server.local_url()),
    }
}

/// Reads the configuration of this process.
fn read<const N: usize>(common: &Common, flags: [Option<Flag>; N]) -> Result<Loaded, StartError> {
    let dir = common.data_dir.as_ref().map(|dir| dir.display().to_string());
    let shared = [flag("--data-dir", "data.dir", dir), flag("--log", "log.filter", common.log.clone())];
    let flags: Vec<Flag> = shared.into_iter().chain(flags).flatten().collect();
    Ok(load(common.config.as_deref(), &flags, Environment::of_process(), Path::new(""))?)
}

fn flag(name: &'static str, key: &'static str, value: Option<String>) -> Option<Flag> {
    value.map(|value| Flag { name, key, value })
}

fn listen(flags: ApiFlags) -> Option<Flag> {
    flag("--listen", "server.listen", flags.listen)
}

fn slots(flags: WorkerFlags) -> Option<Flag> {
    flag("--slots", "worker.slots", flags.slots)
}
