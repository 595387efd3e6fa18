//! `write_file`: a file as a whole.

use serde::Deserialize;
use serde_json::{Value, json};

use super::files::Problem;
use super::input;
use super::workspace::{FILE_BYTES, Workspace};

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    path: String,
    content: String,
}

pub(super) fn describe() -> (String, Value) {
    let description =
        "Writes a file of the workspace as a whole; replaces the one that is there and creates the \
                       directories above it. To change a part of a file use `edit_file`."
            .to_owned();
    let properties = json!({
        "path": { "type": "string", "description": "The file, relative to the workspace." },
        "content": { "type": "string", "description": "All that the file is to contain." },
    });
    (description, input::schema(&properties, &["path", "content"]))
}

pub(super) fn run(workspace: &Workspace, input: &Input) -> Result<String, Problem> {
    let Input { path, content } = input;
    if content.len() as u64 > FILE_BYTES {
        return Err(Problem::new(format!(
            "`content` has more than {FILE_BYTES} bytes. Nothing was written."
        )));
    }
    let what = if workspace.write(path, content)? { "Created" } else { "Replaced" };
    Ok(format!("{what} `{path}` ({} bytes).", content.len()))
}
