//! What the tests need from the Python index: the packages of `xtask/pypi`, all of them pinned, in `target/tools/pypi`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::install::Missing;
use crate::sh;

/// Holds the list of what is installed.
const DONE: &str = "installed";

/// The folder with the packages, for `PYTHONPATH`; they are installed if they are missing or others.
pub(crate) fn packages(missing: Missing) -> Result<PathBuf> {
    let (wanted, folder) = (sh::root().join("xtask/pypi/requirements.txt"), sh::tools().join("pypi"));
    let list = fs::read(&wanted)?;
    if fs::read(folder.join(DONE)).is_ok_and(|done| done == list) {
        return Ok(folder);
    }
    if missing == Missing::Report {
        bail!("the Python packages of the tests are missing; leave out --no-install");
    }
    println!("installing the Python packages of the tests into {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let options = ["--quiet", "--no-input", "--no-deps", "--only-binary=:all:", "--root-user-action=ignore"];
    sh::run_ok(
        sh::command("python3")
            .args(["-m", "pip", "install"])
            .args(options)
            .arg("--target")
            .arg(&folder)
            .arg("--requirement")
            .arg(&wanted),
    )?;
    fs::write(folder.join(DONE), list)?;
    Ok(folder)
}
