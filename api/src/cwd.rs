//! Working directories that a client chooses: only under a workspace root, seen through symbolic links.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use futures::future::join_all;
use roundhouse_shared::code::Code;
use roundhouse_shared::problem::Problem;
use roundhouse_shared::workspaces::Workspaces;

use crate::problem::field_problem;
use crate::settings::Limits;

/// The directory that `cwd` names, without links. What does not exist yet may, as long as it would lie in the right
/// place: the worker that makes it may be on another host.
pub(crate) async fn resolve(cwd: &str, limits: &Limits) -> Result<String, Problem> {
    let refused = |why: &str| field_problem(Code::CwdNotAllowed, "cwd", why);
    let path = Path::new(cwd);
    if !path.is_absolute() {
        return Err(refused("must be an absolute path"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(refused("must not contain `..`"));
    }
    let resolved = real(path).await.ok_or_else(|| refused("cannot be resolved"))?;
    if tokio::fs::metadata(&resolved).await.is_ok_and(|found| !found.is_dir()) {
        return Err(refused("is not a directory"));
    }
    let workspaces = Workspaces {
        data_dir: real(&limits.workspaces.data_dir)
            .await
            .unwrap_or_else(|| limits.workspaces.data_dir.clone()),
        roots: join_all(limits.workspaces.roots.iter().map(|root| real(root)))
            .await
            .into_iter()
            .flatten()
            .collect(),
    };
    if workspaces.chosen(&resolved).is_none() {
        return Err(refused(
            "must lie under a configured workspace root (`workspaces.roots`), outside of the data directory",
        ));
    }
    resolved.into_os_string().into_string().map_err(|_| refused("is not valid UTF-8"))
}

/// The path without links, as far as it exists, and the rest as it is.
async fn real(path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<OsString> = Vec::new();
    let mut existing = path;
    loop {
        match tokio::fs::canonicalize(existing).await {
            Ok(real) => return Some(rest.iter().rev().fold(real, |path, part| path.join(part))),
            // A link to nowhere would lead somewhere once its target is made.
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && tokio::fs::symlink_metadata(existing).await.is_err() =>
            {
                rest.push(existing.file_name()?.to_owned());
                existing = existing.parent()?;
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use roundhouse_shared::units::Span;

    use super::*;

    #[tokio::test]
    async fn only_what_lies_under_a_root_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        for name in ["data", "work/a", "elsewhere"] {
            std::fs::create_dir_all(base.join(name)).unwrap();
        }
        std::fs::write(base.join("work/file"), "").unwrap();
        std::os::unix::fs::symlink(base.join("elsewhere"), base.join("work/out")).unwrap();
        std::os::unix::fs::symlink(base.join("nowhere"), base.join("work/dangling")).unwrap();
        std::os::unix::fs::symlink(base.join("work/a"), base.join("in")).unwrap();
        let limits = Limits {
            injection_timeout: Span::from_secs(1),
            json_wait_timeout: Span::from_secs(1),
            worker_gap: Span::from_secs(1),
            workspaces: Workspaces {
                data_dir: base.join("data"),
                roots: vec![base.join("missing"), base.join("work"), base.join("data")],
            },
        };
        let at = |path: &str| base.join(path).to_str().unwrap().to_owned();
        for (path, expected) in
            [("work/a", "work/a"), ("missing/new", "missing/new"), ("in", "work/a"), ("in/new", "work/a/new")]
        {
            assert_eq!(resolve(&at(path), &limits).await, Ok(at(expected)), "{path}");
        }
        let outside = [
            "",
            "elsewhere",
            "data",
            "data/new",
            "data/claude",
            "work/out",
            "work/out/new",
            "work/dangling",
            "work/file",
            "work/../work",
            "worker",
        ];
        for path in
            outside.map(at).into_iter().chain(["a".to_owned(), "/".to_owned(), "/proc/1/root".to_owned()])
        {
            let refused = resolve(&path, &limits).await.unwrap_err();
            assert_eq!(refused.code, Code::CwdNotAllowed, "{path}");
        }
    }
}
