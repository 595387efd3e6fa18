//! `list_files`: what is in a directory.

use std::fmt::Write;
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::bounded::TEXT_BYTES;
use super::files::Problem;
use super::glob::{self, Glob};
use super::input;
use super::walk::{End, Entry, Walk};
use super::workspace::Workspace;

const ENTRIES: usize = 1_000;

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    path: Option<String>,
    glob: Option<String>,
    depth: Option<usize>,
}

pub(super) fn describe() -> (String, Value) {
    let description = format!(
        "Lists what is in a directory of the workspace: directories end with `/`, symbolic links with `@` and are \
         not followed; what is in `.git` is left out. At most {ENTRIES} entries."
    );
    let properties = json!({
        "path": { "type": "string", "description": "The directory, relative to the workspace; the workspace unless given." },
        "glob": { "type": "string", "description": glob::DESCRIPTION },
        "depth": {
            "type": "integer", "minimum": 1,
            "description": "How many levels of directories; 1 unless given, all with a `glob`.",
        },
    });
    (description, input::schema(&properties, &[]))
}

pub(super) fn run(workspace: &Workspace, input: &Input) -> Result<String, Problem> {
    let path = input.path.as_deref().unwrap_or(".");
    let glob = Glob::new(input.glob.as_deref())?;
    let depth = input.depth.unwrap_or(if input.glob.is_some() { usize::MAX } else { 1 });
    if depth == 0 {
        return Err(Problem::new("The input is not valid: `depth` begins at 1."));
    }
    let dir = workspace.directory(path)?;
    let (mut text, mut count) = (String::new(), 0);
    let mut walk = Walk::new(&workspace.budget, depth);
    let end = walk.run(&dir, &mut |entry| {
        if (input.glob.is_some() && entry.kind.is_dir()) || !glob.matches(entry.path) {
            return ControlFlow::Continue(());
        }
        if count == ENTRIES || text.len() > TEXT_BYTES {
            return ControlFlow::Break(());
        }
        count += 1;
        push(&mut text, entry);
        ControlFlow::Continue(())
    });
    if walk.unread > 0 {
        let _ = writeln!(text, "[… {} directories could not be read …]", walk.unread);
    }
    match end {
        End::Complete if text.is_empty() => text.push_str("(nothing)"),
        End::Complete => {}
        End::Enough => {
            let _ =
                writeln!(text, "[… cut after {count} entries: give a narrower `path`, `glob` or `depth` …]");
        }
        End::Spent => {
            text.push_str("[… not complete: there is too much; give a narrower `path` or `depth` …]\n");
        }
    }
    Ok(text)
}

fn push(text: &mut String, entry: &Entry<'_>) {
    // A name may contain anything; a line is one entry.
    text.push_str(&entry.path.to_string_lossy().replace(['\n', '\r'], "\u{fffd}"));
    if entry.kind.is_dir() {
        text.push('/');
    } else if entry.kind.is_symlink() {
        text.push('@');
    }
    text.push('\n');
}
