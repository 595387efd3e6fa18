//! The commands and their flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Runs AI agents as durable jobs.
///
/// Without a command: `up`. Settings come from flags, `ROUNDHOUSE_…` variables, the file and defaults, in this order.
#[derive(Debug, Parser)]
#[command(name = "roundhouse", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Flags of every command.
#[derive(Debug, Default, Args)]
pub(crate) struct Common {
    /// The file with the configuration [default: roundhouse.toml, where there is one]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Where the SQLite file and the sessions' directories are (`data.dir`)
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// What to log: `debug`, `info,sqlx=warn`, … (`log.filter`)
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything in one process: migrate, api and worker
    Up {
        #[command(flatten)]
        api: ApiFlags,
        #[command(flatten)]
        worker: WorkerFlags,
    },
    /// Serve HTTP; the turns run in `roundhouse worker` processes
    Api(ApiFlags),
    /// Run turns
    Worker(WorkerFlags),
    /// Bring the database's schema up to date
    Migrate,
    /// Print the effective configuration, with secrets masked
    Config {
        /// Print the defaults instead, with what each key is for
        #[arg(long)]
        example: bool,
    },
    /// Serve the built-in deterministic model
    Oracle {
        /// Where to listen
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9001")]
        listen: SocketAddr,
    },
    /// Exit with 0 if the server is ready
    Health {
        /// Where the server is [default: where the configuration says it listens]
        #[arg(long)]
        url: Option<String>,
    },
    /// Talk to an agent
    Chat(ChatArgs),
}

/// Flags of the commands that serve HTTP.
#[derive(Debug, Default, Args)]
pub(crate) struct ApiFlags {
    /// Where to listen (`server.listen`)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
}

/// Flags of the commands that run turns.
#[derive(Debug, Default, Args)]
pub(crate) struct WorkerFlags {
    /// How many turns run at once (`worker.slots`)
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<String>,
}

/// What `chat` is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChatArgs {
    /// The agent
    pub(crate) agent: String,
    /// The message; without one, messages are read from standard input, one a line
    pub(crate) message: Option<String>,
    /// The session to go on with; without one, a new session
    #[arg(short, long)]
    pub(crate) session: Option<String>,
    /// Where the server is [default: where the configuration says it listens]
    #[arg(long)]
    pub(crate) url: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_every_command_may_stand_anywhere() {
        for args in [["--config", "a.toml", "worker"], ["worker", "--config", "a.toml"]] {
            let cli = Cli::try_parse_from([&["roundhouse"][..], &args].concat()).unwrap();
            assert_eq!(cli.common.config, Some(PathBuf::from("a.toml")));
        }
    }
}
