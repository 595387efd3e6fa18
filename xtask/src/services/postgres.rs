//! A Postgres of one run: a new cluster each time, and no care for its data after a crash.

use std::fs::{create_dir, read_to_string};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use super::child::{Recipe, Server, tied};
use crate::{install, sh};

/// Postgres refuses to run as root; Debian's packages make this user for it.
const USER: &str = "postgres";

/// "Immediate shutdown": the server ends all its processes and does not tidy up its data.
const STOP: Signal = Signal::SIGQUIT;

const SETTINGS: [&str; 6] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "max_connections=300",
];

/// Starts it with the programs in `programs` and its data under `folder`; also returns a superuser's URL.
pub(crate) fn start(programs: &Path, folder: &Path) -> Result<(Server, String)> {
    let home = folder.join("postgres");
    create_dir(&home)?;
    let user = install::is_root()?.then_some(USER);
    if let Some(user) = user {
        let (uid, gid) = ids_of(user)?;
        chown(&home, Some(uid), Some(gid))?;
    }
    let data = home.join("data");
    let program = |name: &str| -> Result<Command> {
        let mut command = tied(&programs.join(name), STOP, user)?;
        command.current_dir(&home).arg("-D").arg(&data);
        // A developer's PGPORT, PGDATA and the like are about another server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        Ok(command)
    };
    let initdb = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"];
    sh::run_ok(program("initdb")?.args(initdb).stdout(Stdio::null())).context("initdb")?;
    let recipe = Recipe {
        name: "Postgres",
        stop: STOP,
        log: &folder.join("postgres.log"),
        command: &|port| {
            let mut command = program("postgres")?;
            command.arg("-p").arg(port.to_string());
            for setting in SETTINGS {
                command.args(["-c", setting]);
            }
            Ok(command)
        },
        // The server accepts connections before it can serve them; the last line of this file says when it can.
        answers: &|_| {
            read_to_string(data.join("postmaster.pid"))
                .is_ok_and(|text| text.lines().last().is_some_and(|line| line.trim() == "ready"))
        },
    };
    let (server, port) = recipe.start()?;
    Ok((server, format!("postgres://postgres@127.0.0.1:{port}/postgres")))
}

/// The ids of a system user, which is created if it is missing.
fn ids_of(user: &str) -> Result<(u32, u32)> {
    let exists = Command::new("id").arg(user).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success();
    if !exists {
        println!("creating the system user {user}: Postgres does not run as root");
        let options = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"];
        sh::run_ok(sh::command("useradd").args(options).arg(user))?;
    }
    let id = |kind| -> Result<u32> { Ok(sh::output(sh::command("id").args([kind, user]))?.trim().parse()?) };
    Ok((id("-u")?, id("-g")?))
}
