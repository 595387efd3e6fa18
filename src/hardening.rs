//! What a process asks of the kernel at its start: to be closed to others of its user, private files, enough descriptors.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;

/// Closes this process to others of its user: tools run as that user, and would read our environment, with all keys, in
/// `/proc`, or our memory with a debugger. Also writes no core file. Call it before anything is read.
pub(crate) fn close() -> Result<(), nix::Error> {
    prctl::set_dumpable(false)
}

/// Says where [`close`] does not help.
pub(crate) fn warn_where_open() {
    if Uid::effective().is_root() {
        tracing::warn!(
            "this process runs as uid 0: tools run as root too, and can read its environment and all that it has; run it \
             as a user of its own"
        );
    }
    if !matches!(prctl::get_dumpable(), Ok(false)) {
        tracing::warn!(
            "this process could not be closed to others of its user: tools can read its environment"
        );
    }
}

/// Makes every file that this process creates its user's alone. Children inherit it: what tools write in a workspace is
/// private too.
pub(crate) fn make_files_private() {
    umask(Mode::from_bits_truncate(0o077));
}

/// Logs a warning where others than its owner may read or write a file or directory of ours: one of an earlier version, or
/// that somebody else has made.
pub(crate) fn warn_where_readable(path: &Path) {
    let Ok(found) = path.metadata() else { return };
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let (path, mode) = (path.display(), format!("{mode:03o}"));
        tracing::warn!(%path, mode, "others on this host may read this: close it with `chmod go= {path}`");
    }
}

/// Raises the limit of open files as far as the system allows, and returns it. Each client holds a descriptor, and the
/// usual limit of 1,024 is made for programs that use `select`.
pub(crate) fn open_files() -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}
