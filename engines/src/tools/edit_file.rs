//! `edit_file`: exact replacement in a file.

use serde::Deserialize;
use serde_json::{Value, json};

use super::files::Problem;
use super::workspace::{FILE_BYTES, Workspace};
use super::{diff, input};

/// How many places are named where a text is not unique.
const NAMED: usize = 10;

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn describe() -> (String, Value) {
    let description = "Replaces a text in a file of the workspace and returns what has changed. `old` has to be in \
                       the file exactly as given, white space included, and only once unless `replace_all` is set."
        .to_owned();
    let properties = json!({
        "path": { "type": "string", "description": "The file, relative to the workspace." },
        "old": { "type": "string", "description": "The text to replace." },
        "new": { "type": "string", "description": "The text to put in its place." },
        "replace_all": { "type": "boolean", "description": "Replace every occurrence; false unless given." },
    });
    (description, input::schema(&properties, &["path", "old", "new"]))
}

pub(super) fn run(workspace: &Workspace, input: &Input) -> Result<String, Problem> {
    let Input { path, old, new, replace_all } = input;
    if old.is_empty() {
        return Err(Problem::new(
            "The input is not valid: `old` is empty. To write a new file use `write_file`.",
        ));
    }
    if old == new {
        return Err(Problem::new("The input is not valid: `old` and `new` are the same."));
    }
    let before = workspace.text(path)?;
    let places: Vec<usize> = before.match_indices(old.as_str()).map(|(at, _)| at).collect();
    match places.len() {
        0 => return Err(missing(path, &before, old)),
        1 => {}
        _ if *replace_all => {}
        count => {
            let lines: Vec<String> =
                places.iter().take(NAMED).map(|at| diff::line_at(&before, *at).to_string()).collect();
            let more = if count > NAMED { ", …" } else { "" };
            return Err(Problem::new(format!(
                "`old` is {count} times in `{path}` (lines {}{more}): give more of the text around it, or set \
                 `replace_all`. Nothing was changed.",
                lines.join(", ")
            )));
        }
    }
    let count = places.len();
    // Before the text is made: a short `old` and a long `new` make gigabytes of a small file.
    let kept = before.len() - count * old.len();
    let after = new.len().checked_mul(count).and_then(|added| kept.checked_add(added));
    if after.is_none_or(|after| FILE_BYTES < after as u64) {
        return Err(Problem::new(format!(
            "`{path}` would have more than {FILE_BYTES} bytes: use `shell` for it. Nothing was changed."
        )));
    }
    workspace.write(path, &before.replace(old, new))?;
    let times = if count == 1 { "1 place".to_owned() } else { format!("{count} places") };
    Ok(format!("Changed `{path}` in {times}.\n{}", diff::replaced(&before, &places, old, new)))
}

/// Most often the white space is not the same.
fn missing(path: &str, before: &str, old: &str) -> Problem {
    let first = old.lines().map(str::trim).find(|line| !line.is_empty());
    let similar = first.and_then(|first| before.lines().position(|line| line.trim() == first));
    let hint = match similar {
        Some(index) => {
            format!(" Line {} is like its first line: compare white space and what follows.", index + 1)
        }
        None => " Read the file again and copy the text exactly.".to_owned(),
    };
    Problem::new(format!("`old` is not in `{path}`. Nothing was changed.{hint}"))
}
