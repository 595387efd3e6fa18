//! What the tests need from npm: the packages of `xtask/npm`, pinned by its lock file, in `target/tools/npm`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::install::{self, Missing};
use crate::sh;

/// What npm is told; it reads them in the folder that it installs into.
const FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// Holds the lock file of what is installed.
const DONE: &str = "installed";

/// The main file of the MCP server that the tests call, installed if it is missing or another version.
pub(crate) fn mcp_everything(missing: Missing) -> Result<PathBuf> {
    let (wanted, folder) = (sh::root().join("xtask/npm"), sh::tools().join("npm"));
    let main = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let lock = fs::read(wanted.join("package-lock.json"))?;
    if main.is_file() && fs::read(folder.join(DONE)).is_ok_and(|done| done == lock) {
        return Ok(main);
    }
    if missing == Missing::Report {
        bail!("the npm packages of the tests are missing; leave out --no-install");
    }
    let npm = install::npm(missing)?;
    println!("installing the npm packages of the tests into {}", folder.display());
    fs::create_dir_all(&folder)?;
    for file in FILES {
        fs::copy(wanted.join(file), folder.join(file))?;
    }
    let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    sh::run_ok(sh::command(npm).args(options).current_dir(&folder))?;
    if !main.is_file() {
        bail!("npm installed its packages, but not {}", main.display());
    }
    fs::write(folder.join(DONE), lock)?;
    Ok(main)
}
