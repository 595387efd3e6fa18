//! A Redis of one run, which keeps nothing.

use std::fs::create_dir;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::child::{Recipe, Server, tied};

/// Starts the program with `folder` for its files; also returns its URL.
pub(crate) fn start(program: &Path, folder: &Path) -> Result<(Server, String)> {
    let home = folder.join("redis");
    create_dir(&home)?;
    let recipe = Recipe {
        name: "Redis",
        stop: Signal::SIGTERM,
        log: &folder.join("redis.log"),
        command: &|port| {
            let mut command = tied(program, Signal::SIGTERM, None)?;
            command.current_dir(&home).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
            command.args(["--save", "", "--appendonly", "no"]);
            Ok(command)
        },
        answers: &answers,
    };
    let (server, port) = recipe.start()?;
    Ok((server, format!("redis://127.0.0.1:{port}")))
}

fn answers(port: u16) -> bool {
    let ping = || -> Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    };
    ping().unwrap_or(false)
}
