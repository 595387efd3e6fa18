//! `cargo xtask services`: a Postgres and a Redis for tests, private to one run.
//!
//! They listen on 127.0.0.1, on ports that were free, never on the standard ones; their data lies in a temporary
//! folder. Both are gone when [`Services`] is dropped. A service that the environment names already is not started.

mod child;
mod postgres;
mod redis;

use std::ffi::OsString;
use std::io::{Write as _, stdout};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;
use tempfile::TempDir;

use crate::install::{self, Missing};
use crate::{npm, pypi, sh};

/// A superuser's URL; tests create databases of their own.
const POSTGRES_URL: &str = "ROUNDHOUSE_TEST_POSTGRES_URL";
/// A server that tests share; each uses a key prefix of its own.
const REDIS_URL: &str = "ROUNDHOUSE_TEST_REDIS_URL";
/// The program, for tests that stop and restart a Redis of their own.
const REDIS_SERVER: &str = "ROUNDHOUSE_TEST_REDIS_SERVER";
/// The program, for tests that put one in front of Postgres.
const PGBOUNCER: &str = "ROUNDHOUSE_TEST_PGBOUNCER";

/// The main file of an MCP server, for tests that start one.
pub(crate) const MCP_EVERYTHING: &str = "ROUNDHOUSE_TEST_MCP_EVERYTHING";
/// The folder with older MCP servers that run on Node.js.
const MCP_OLD: &str = "ROUNDHOUSE_TEST_MCP_OLD";
/// The folder with older MCP servers that run on Python.
const MCP_PYTHON: &str = "ROUNDHOUSE_TEST_MCP_PYTHON";
/// The Claude Code CLI, for tests of its engine.
pub(crate) const CLAUDE: &str = "ROUNDHOUSE_TEST_CLAUDE";
/// The folder of the Claude Agent SDK, for tests that compare with it.
pub(crate) const CLAUDE_SDK: &str = "ROUNDHOUSE_TEST_CLAUDE_SDK";

/// Starts a private Postgres and Redis and runs a command with their addresses in its environment. Without a command
/// it prints the variables and waits for Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fail instead of installing what is missing.
    #[arg(long)]
    no_install: bool,
    /// The command, after `--`.
    #[arg(last = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let services = Services::start(Missing::from_flag(args.no_install))?;
    if let [program, arguments @ ..] = args.command.as_slice() {
        let mut command = sh::command(program);
        if let Some(folder) = &services.caller_folder {
            command.current_dir(folder);
        }
        return Ok(sh::exit_code_of(sh::run_attached(services.name_to(command.args(arguments)))?));
    }
    for (name, value) in &services.variables {
        println!("export {name}='{}'", value.to_string_lossy());
    }
    println!("# Ctrl-C ends them.");
    stdout().flush()?;
    while sh::pause().is_ok() {}
    Ok(ExitCode::SUCCESS)
}

/// The running services. Fields are dropped in order: the servers before the folder that they write to.
pub(crate) struct Services {
    variables: Vec<(&'static str, OsString)>,
    caller_folder: Option<PathBuf>,
    _postgres: Option<child::Server>,
    _redis: Option<child::Server>,
    _folder: TempDir,
}

impl Services {
    /// Starts what the environment does not name, and returns when both answer.
    pub(crate) fn start(missing: Missing) -> Result<Self> {
        let folder = child::folder()?;
        let mut variables = Vec::new();
        let postgres = if let Some(url) = sh::variable(POSTGRES_URL) {
            println!("{POSTGRES_URL} is set: no Postgres is started");
            variables.push((POSTGRES_URL, url));
            None
        } else {
            let programs = install::postgres_folder(missing)?;
            let (server, url) = postgres::start(&programs, folder.path())?;
            variables.push((POSTGRES_URL, url.into()));
            Some(server)
        };
        let redis_server = match sh::variable(REDIS_SERVER) {
            Some(path) => path.into(),
            None => install::redis_server(missing)?,
        };
        let redis = if let Some(url) = sh::variable(REDIS_URL) {
            println!("{REDIS_URL} is set: no Redis is started");
            variables.push((REDIS_URL, url));
            None
        } else {
            let (server, url) = redis::start(&redis_server, folder.path())?;
            variables.push((REDIS_URL, url.into()));
            Some(server)
        };
        variables.push((REDIS_SERVER, redis_server.into()));
        variables.extend(packages(missing));
        let caller_folder = std::env::current_dir().ok();
        Ok(Self { variables, caller_folder, _postgres: postgres, _redis: redis, _folder: folder })
    }

    /// Gives the addresses to a command.
    pub(crate) fn name_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)))
    }
}

/// What the tests are told of `pgbouncer` and of the packages of npm and Python, but for what the environment names already.
fn packages(missing: Missing) -> Vec<(&'static str, OsString)> {
    type Find = fn(Missing) -> Result<PathBuf>;
    let wanted: [(&'static str, Find); 6] = [
        (PGBOUNCER, install::pgbouncer),
        (MCP_EVERYTHING, |missing| npm::packages(missing)?.mcp_everything()),
        (MCP_OLD, |missing| npm::packages(missing)?.mcp_old()),
        (MCP_PYTHON, pypi::packages),
        (CLAUDE, |missing| npm::packages(missing)?.claude()),
        (CLAUDE_SDK, |missing| npm::packages(missing)?.claude_sdk()),
    ];
    let mut variables = Vec::new();
    for (name, find) in wanted {
        let value = sh::variable(name).map_or_else(|| find(missing).map(Into::into), Ok);
        match value {
            Ok(value) => variables.push((name, value)),
            // The tests that need it say so; all others can run.
            Err(error) => println!("{name} is not set: {error:#}"),
        }
    }
    variables
}
