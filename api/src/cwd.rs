//! Working directories: only under the data directory or a workspace root, seen through symbolic links.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use roundhouse_shared::code::Code;
use roundhouse_shared::problem::Problem;

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
    for root in std::iter::once(&limits.data_dir).chain(&limits.workspace_roots) {
        let root = std::path::absolute(root).unwrap_or_else(|_| root.clone());
        if real(&root).await.is_some_and(|root| resolved.starts_with(root)) {
            return resolved.into_os_string().into_string().map_err(|_| refused("is not valid UTF-8"));
        }
    }
    Err(refused("must lie under the data directory or a configured workspace root"))
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
            data_dir: base.join("data"),
            workspace_roots: vec![base.join("missing"), base.join("work")],
        };
        let at = |path: &str| base.join(path).to_str().unwrap().to_owned();
        for (path, expected) in [
            ("data", "data"),
            ("data/new/deep", "data/new/deep"),
            ("work/a", "work/a"),
            ("in", "work/a"),
            ("in/new", "work/a/new"),
        ] {
            assert_eq!(resolve(&at(path), &limits).await, Ok(at(expected)), "{path}");
        }
        let outside = [
            "",
            "elsewhere",
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
