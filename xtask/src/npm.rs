//! What the tests need from npm: the packages of `xtask/npm`, pinned by its lock file, in `target/tools/npm`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::install::{self, Missing};
use crate::sh;

/// What npm is told; it reads them in the folder that it installs into.
const FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

/// Holds the lock file of what is installed.
const DONE: &str = "installed";

/// The installed packages.
pub(crate) struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// The main file of the MCP server that the tests call.
    pub(crate) fn mcp_everything(&self) -> Result<PathBuf> {
        self.file("@modelcontextprotocol/server-everything/dist/index.js")
    }

    /// Older MCP servers, as folders with the name and the version that their protocol is of.
    pub(crate) fn mcp_old(&self) -> Result<PathBuf> {
        for old in ["server-everything-2024", "server-everything-2025", "server-filesystem-2024"] {
            self.file(&format!("{old}/dist/index.js"))?;
        }
        Ok(self.folder.join("node_modules"))
    }

    /// The folder of the Claude Agent SDK, with which the tests compare what we write of its files.
    pub(crate) fn claude_sdk(&self) -> Result<PathBuf> {
        let main = self.file("@anthropic-ai/claude-agent-sdk/sdk.mjs")?;
        Ok(main.parent().map(Path::to_owned).unwrap_or_default())
    }

    /// The Claude Code CLI that comes with it: a package of its own for each platform, of which npm installs ours.
    pub(crate) fn claude(&self) -> Result<PathBuf> {
        let platforms = self.folder.join("node_modules/@anthropic-ai").read_dir()?.flatten();
        let mut programs =
            platforms.map(|platform| platform.path().join("claude")).filter(|path| path.is_file());
        programs.next().context("the packages hold no Claude Code CLI for this platform")
    }

    fn file(&self, path: &str) -> Result<PathBuf> {
        let path = self.folder.join("node_modules").join(path);
        if path.is_file() {
            Ok(path)
        } else {
            bail!("npm installed its packages, but not {}", path.display())
        }
    }
}

/// The packages, installed if they are missing or others.
pub(crate) fn packages(missing: Missing) -> Result<Packages> {
    let (wanted, folder) = (sh::root().join("xtask/npm"), sh::tools().join("npm"));
    let lock = fs::read(wanted.join("package-lock.json"))?;
    if fs::read(folder.join(DONE)).is_ok_and(|done| done == lock) {
        return Ok(Packages { folder });
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
    fs::write(folder.join(DONE), lock)?;
    Ok(Packages { folder })
}

/// The newest release of the Claude Agent SDK, installed beside the pinned one.
pub(crate) fn newest_claude() -> Result<Packages> {
    let (npm, folder) = (install::npm(Missing::Install)?, sh::tools().join("npm-newest"));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let options = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let newest = "@anthropic-ai/claude-agent-sdk@latest";
    sh::run_ok(sh::command(npm).args(options).arg(newest).current_dir(&folder))?;
    Ok(Packages { folder })
}
