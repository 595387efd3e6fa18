//! The directory that a session works in, opened anew for each turn.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use roundhouse_engines::contract::Capabilities;
use roundhouse_shared::code::Code;
use roundhouse_shared::domain::SessionId;
use roundhouse_shared::problem::Problem;
use roundhouse_shared::workspaces::{Place, Workspaces};

use crate::Worker;

/// Where a session works: the directory that its row names, or its own workspace.
pub(crate) fn workspace(worker: &Worker, session: SessionId, cwd: &str) -> PathBuf {
    match cwd {
        "" => worker.workspaces.of(session),
        cwd => PathBuf::from(cwd),
    }
}

/// Checks a session's directory, makes it where it is missing, and returns its path without symbolic links. What the
/// session's own tools have done to the path since it was chosen must not lead the next turn elsewhere.
pub(crate) async fn prepare(
    worker: &Worker,
    session: SessionId,
    cwd: PathBuf,
    capabilities: Capabilities,
) -> Result<PathBuf, Problem> {
    if !capabilities.works_on_files {
        return Ok(cwd);
    }
    let workspaces = worker.workspaces.clone();
    let opening = tokio::task::spawn_blocking(move || open(&workspaces, &cwd).map_err(|error| (cwd, error)));
    match opening.await {
        Ok(Ok(path)) => Ok(path),
        Ok(Err((cwd, error))) => {
            tracing::error!(session.id = %session, cwd = %cwd.display(), %error, "the working directory cannot be used");
            Err(match error {
                Refused::Outside => Problem::with_detail(Code::CwdNotAllowed, OUTSIDE),
                Refused::Io(_) => {
                    let detail = "the worker cannot open or create the session's working directory";
                    Problem::with_detail(Code::EngineUnavailable, detail)
                }
            })
        }
        Err(_) => Err(Problem::new(Code::Internal)),
    }
}

const OUTSIDE: &str =
    "the session's working directory does not lie under a configured workspace root any more";

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("it leads out of the workspace roots")]
    Outside,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a directory beneath its root, in which the kernel resolves every part of the path (`openat2`): a symbolic link that
/// leads out is refused, whenever it was made.
fn open(workspaces: &Workspaces, cwd: &Path) -> Result<PathBuf, Refused> {
    let Place { root, below, is_workspace } = workspaces.stored(cwd).ok_or(Refused::Outside)?;
    if is_workspace {
        std::fs::create_dir_all(&root)?;
    }
    let dir = Dir::open_ambient_dir(&root, ambient_authority())?;
    if below.as_os_str().is_empty() {
        return Ok(cwd.to_owned());
    }
    match dir.symlink_metadata(&below) {
        // A workspace that was replaced by a link to another session's.
        Ok(found) if is_workspace && !found.is_dir() => return Err(Refused::Outside),
        Err(error) if error.kind() == ErrorKind::NotFound => dir.create_dir_all(&below).map_err(refused)?,
        _ => {}
    }
    dir.open_dir(&below).map_err(refused)?;
    let real = root.join(dir.canonicalize(&below).map_err(refused)?);
    // A link within the root may still lead into the data directory.
    if workspaces.stored(&real).is_none() {
        return Err(Refused::Outside);
    }
    Ok(real)
}

/// What an error of the opening means: cap-std says of a path that leads out that it is not permitted.
fn refused(error: io::Error) -> Refused {
    match error.kind() {
        ErrorKind::PermissionDenied => Refused::Outside,
        _ => Refused::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Host {
        _folder: tempfile::TempDir,
        base: PathBuf,
        workspaces: Workspaces,
    }

    fn host() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["data/claude", "data/workspaces", "root/a", "elsewhere"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        let workspaces =
            Workspaces { data_dir: base.join("data"), roots: vec![base.join("root"), base.clone()] };
        Host { _folder: folder, base, workspaces }
    }

    #[test]
    fn a_missing_directory_is_made_beneath_its_root() {
        let Host { base, workspaces, .. } = &host();
        let own = workspaces.of(SessionId::generate());
        for path in [base.join("root/a"), base.join("root/new/deep"), own] {
            assert_eq!(open(workspaces, &path).unwrap(), path);
            assert!(path.is_dir());
        }
    }

    #[test]
    fn a_link_that_leads_out_is_refused_whenever_it_was_made() {
        let Host { base, workspaces, .. } = &host();
        let only = Workspaces { roots: vec![base.join("root")], ..workspaces.clone() };
        symlink("/etc", base.join("root/etc")).unwrap();
        symlink("../elsewhere", base.join("root/out")).unwrap();
        symlink("../missing", base.join("root/dangling")).unwrap();
        symlink("a", base.join("root/in")).unwrap();
        for path in [
            "root/etc",
            "root/etc/new",
            "root/out",
            "root/out/new",
            "root/dangling",
            "elsewhere",
            "root/../elsewhere",
        ] {
            let refused = open(&only, &base.join(path)).unwrap_err();
            assert!(matches!(refused, Refused::Outside), "{path}: {refused:?}");
        }
        assert!(!base.join("elsewhere/new").exists() && !base.join("missing").exists());
        assert_eq!(open(&only, &base.join("root/in")).unwrap(), base.join("root/a"));
    }

    #[test]
    fn a_workspace_that_became_a_link_is_refused() {
        let Host { workspaces, .. } = &host();
        let [own, other] = [(); 2].map(|()| workspaces.of(SessionId::generate()));
        std::fs::create_dir(&other).unwrap();
        symlink(&other, &own).unwrap();
        assert!(matches!(open(workspaces, &own).unwrap_err(), Refused::Outside));
    }

    #[test]
    fn a_link_into_the_data_directory_is_refused_though_a_root_holds_both() {
        let Host { base, workspaces, .. } = &host();
        let wide = Workspaces { roots: vec![base.clone()], ..workspaces.clone() };
        symlink("../data/claude", base.join("root/conversations")).unwrap();
        assert!(matches!(open(&wide, &base.join("root/conversations")).unwrap_err(), Refused::Outside));
        assert!(open(&wide, &base.join("root/a")).is_ok());
    }
}
