//! The workspace: a directory that no path leads out of.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, PermissionsExt};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use uuid::Uuid;

use super::files::{Budget, Problem};
use crate::permissions::is_in_repository;

/// The longest file that is held in memory.
pub(super) const FILE_BYTES: u64 = 8 * 1024 * 1024;

/// All access goes through the handle of the directory: cap-std resolves paths below it in the kernel (`openat2`) or
/// step by step, so that nothing that happens to the path meanwhile leads out.
#[derive(Debug)]
pub(super) struct Workspace {
    root: PathBuf,
    dir: Dir,
    pub(super) budget: Budget,
}

/// Where a file is to be written: a name in a directory that is open.
#[derive(Debug)]
struct Place {
    parent: Dir,
    name: PathBuf,
    /// The permissions of the file that is replaced.
    mode: Option<u32>,
}

impl Workspace {
    pub(super) fn open(root: PathBuf, budget: Budget) -> Result<Self, Problem> {
        match open_root(&root) {
            Ok(dir) => Ok(Self { root, dir, budget }),
            Err(error) => Err(Problem::new(format!("The workspace cannot be opened: {error}."))),
        }
    }

    /// The path as one below the workspace. Absolute paths are understood where they name something in it.
    fn relative(&self, path: &str) -> Result<PathBuf, Problem> {
        if path.is_empty() || path.contains('\0') {
            return Err(Problem::new("The path is not valid: it is empty or contains NUL."));
        }
        let path = Path::new(path);
        if path.is_relative() {
            return Ok(path.to_path_buf());
        }
        let below = path.strip_prefix(&self.root).ok().map(Path::to_path_buf);
        let below = below
            .or_else(|| path.strip_prefix(fs::canonicalize(&self.root).ok()?).ok().map(Path::to_path_buf));
        match below {
            Some(below) if below.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Some(below) => Ok(below),
            None => Err(outside(path)),
        }
    }

    /// A directory of the workspace.
    pub(super) fn directory(&self, path: &str) -> Result<Dir, Problem> {
        self.dir.open_dir(self.relative(path)?).map_err(|error| problem(path, &error))
    }

    pub(super) fn is_file(&self, path: &str) -> Result<bool, Problem> {
        let metadata = self.dir.metadata(self.relative(path)?).map_err(|error| problem(path, &error))?;
        Ok(metadata.is_file())
    }

    /// Opens a regular file for reading.
    pub(super) fn file(&self, path: &str) -> Result<File, Problem> {
        let file = open_file(&self.dir, &self.relative(path)?).map_err(|error| problem(path, &error))?;
        file.ok_or_else(|| Problem::new(format!("`{path}` is not a regular file.")))
    }

    /// The whole of a file that is text and not too long.
    pub(super) fn text(&self, path: &str) -> Result<String, Problem> {
        let mut bytes = Vec::new();
        let mut file = io::Read::take(self.file(path)?.into_std(), FILE_BYTES + 1);
        io::Read::read_to_end(&mut file, &mut bytes).map_err(|error| problem(path, &error))?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(Problem::new(format!(
                "`{path}` has more than {FILE_BYTES} bytes: use `shell` for it."
            )));
        }
        String::from_utf8(bytes).map_err(|_| Problem::new(format!("`{path}` is not UTF-8 text.")))
    }

    /// Where to write the file of this path. Creates the directories above it. A symbolic link is followed, as long
    /// as it stays in the workspace.
    fn place(&self, path: &str) -> Result<Place, Problem> {
        let mut relative = self.relative(path)?;
        let ends_as_file = matches!(relative.components().next_back(), Some(Component::Normal(_)));
        if path.ends_with('/') || !ends_as_file {
            return Err(Problem::new(format!("`{path}` does not name a file.")));
        }
        if self.dir.symlink_metadata(&relative).is_ok_and(|metadata| metadata.is_symlink()) {
            relative = self.dir.canonicalize(&relative).map_err(|error| problem(path, &error))?;
        }
        if self.is_in_repository(&relative) {
            return Err(Problem::new(format!(
                "Refused: `{path}` is in `.git`, which decides what git runs. Use git itself."
            )));
        }
        let (Some(parent), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(Problem::new(format!("`{path}` does not name a file.")));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = self.directory_made(parent).map_err(|error| problem(path, &error))?;
        let mode = match parent.symlink_metadata(name) {
            Ok(metadata) if metadata.is_file() => Some(metadata.permissions().mode() & 0o777),
            Ok(_) => return Err(Problem::new(format!("`{path}` is there already and not a regular file."))),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(problem(path, &error)),
        };
        Ok(Place { parent, name: name.into(), mode })
    }

    /// Whether a path leads into a repository's own folder, as it is written or through links.
    fn is_in_repository(&self, relative: &Path) -> bool {
        let there = relative.ancestors().find_map(|path| self.dir.canonicalize(path).ok());
        [Some(relative), there.as_deref(), Some(&self.root)].into_iter().flatten().any(is_in_repository)
    }

    /// Opens a directory; makes it where there is none. A link that leads out is an error of the opening.
    fn directory_made(&self, path: &Path) -> io::Result<Dir> {
        match self.dir.open_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.dir.create_dir_all(path)?;
                self.dir.open_dir(path)
            }
            opened => opened,
        }
    }

    /// Writes a file as a whole: a reader sees the old one or the new one. Says whether it is new.
    pub(super) fn write(&self, path: &str, content: &str) -> Result<bool, Problem> {
        let place = self.place(path)?;
        let temporary = PathBuf::from(format!(".roundhouse-{}.tmp", Uuid::now_v7().simple()));
        let written = place
            .fill(&temporary, content.as_bytes())
            .map_err(|error| problem(path, &error))
            .and_then(|()| {
                if self.budget.is_spent() {
                    return Err(Problem::new(format!("The call was ended before `{path}` was written.")));
                }
                place
                    .parent
                    .rename(&temporary, &place.parent, &place.name)
                    .map_err(|error| problem(path, &error))
            });
        if written.is_err() {
            let _ = place.parent.remove_file(&temporary);
        }
        written.map(|()| place.mode.is_none())
    }
}

/// Opens the workspace itself. The path was without links when the turn began; one that has come since leads elsewhere.
fn open_root(root: &Path) -> io::Result<Dir> {
    let how =
        OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, root, how) {
        Ok(dir) => Ok(Dir::from_std_file(fs::File::from(dir))),
        // A kernel, or a container's filter, that does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => Dir::open_ambient_dir(root, ambient_authority()),
        Err(error) => Err(error.into()),
    }
}

impl Place {
    fn fill(&self, temporary: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = self.parent.open_with(temporary, OpenOptions::new().write(true).create_new(true))?;
        io::Write::write_all(&mut file, content)?;
        match self.mode {
            Some(mode) => file.set_permissions(cap_std::fs::Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }
}

/// Opens a regular file, `None` if it is something else. Does not wait for the other end of a named pipe.
pub(super) fn open_file(dir: &Dir, path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = dir.open_with(path, &options)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// What went wrong with a path.
pub(super) fn problem(path: &str, error: &io::Error) -> Problem {
    match error.kind() {
        // cap-std's own refusal carries no number of the system's.
        ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(Path::new(path)),
        ErrorKind::NotFound => Problem::new(format!("`{path}` does not exist.")),
        ErrorKind::PermissionDenied => Problem::new(format!("Access to `{path}` is denied.")),
        ErrorKind::NotADirectory => Problem::new(format!("`{path}`: a part of the path is not a directory.")),
        ErrorKind::IsADirectory => Problem::new(format!("`{path}` is a directory.")),
        _ => Problem::new(format!("`{path}`: {error}.")),
    }
}

fn outside(path: &Path) -> Problem {
    Problem::new(format!(
        "Refused: `{}` leads out of the workspace (through `..`, an absolute path or a symbolic link).",
        path.display()
    ))
}
