//! What keeps other processes of the same user out of this one.

use nix::sys::prctl;
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
