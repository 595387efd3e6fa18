//! `read_file`: the text of a file, or some of its lines.

use std::fmt::Write;
use std::io::BufReader;

use serde::Deserialize;
use serde_json::{Value, json};

use super::bounded::TEXT_BYTES;
use super::files::Problem;
use super::input;
use super::lines::{self, CHUNK_BYTES, Line};
use super::workspace::{Workspace, problem};

const LINES: u64 = 2_000;

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    path: String,
    offset_line: Option<u64>,
    limit_lines: Option<u64>,
}

pub(super) fn describe() -> (String, Value) {
    let description = format!(
        "Returns the text of a file of the workspace as it is, or some of its lines. At most {LINES} lines and {} \
         KiB at once; where it was cut, the result says how to go on. Fails for what is not UTF-8 text.",
        TEXT_BYTES / 1024
    );
    let properties = json!({
        "path": { "type": "string", "description": "The file, relative to the workspace." },
        "offset_line": { "type": "integer", "minimum": 1, "description": "The first line to return; 1 unless given." },
        "limit_lines": { "type": "integer", "minimum": 1, "description": "How many lines to return at most." },
    });
    (description, input::schema(&properties, &["path"]))
}

pub(super) fn run(workspace: &Workspace, input: &Input) -> Result<String, Problem> {
    let Input { path, offset_line, limit_lines } = input;
    let first = offset_line.unwrap_or(1);
    let limit = limit_lines.unwrap_or(LINES).min(LINES);
    if first == 0 || limit == 0 {
        return Err(Problem::new("The input is not valid: `offset_line` and `limit_lines` begin at 1."));
    }
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, workspace.file(path)?.into_std());
    if lines::is_binary(&mut reader).map_err(|error| problem(path, &error))? {
        return Err(Problem::new(format!("`{path}` is a binary file, not text.")));
    }
    let mut text = String::new();
    let mut number = 0;
    while let Some(line) = lines::next(&mut reader).map_err(|error| problem(path, &error))? {
        number += 1;
        if number < first {
            if number % 1_024 == 0 && workspace.budget.is_spent() {
                return Err(Problem::new(format!(
                    "`{path}` is too long: line {first} was not reached in time."
                )));
            }
            continue;
        }
        let line_text = decode(path, number, line)?;
        if number - first >= limit || text.len() + line_text.len() > TEXT_BYTES {
            let _ = writeln!(text, "[… cut: go on with `offset_line` {number} …]");
            return Ok(text);
        }
        text.push_str(&line_text);
    }
    match number {
        0 => Ok("(the file is empty)".to_owned()),
        _ if number < first => Err(Problem::new(format!("`{path}` has only {number} lines."))),
        _ => Ok(text),
    }
}

fn decode(path: &str, number: u64, mut line: Line) -> Result<String, Problem> {
    if let Err(error) = str::from_utf8(&line.kept) {
        let was_cut_inside = line.left_out_bytes > 0 && error.error_len().is_none();
        if !was_cut_inside {
            return Err(Problem::new(format!("`{path}` is not UTF-8 text (line {number}).")));
        }
        line.left_out_bytes += (line.kept.len() - error.valid_up_to()) as u64;
        line.kept.truncate(error.valid_up_to());
    }
    let mut text = super::text::clean(&line.kept);
    if line.left_out_bytes > 0 {
        let _ = write!(text, "[… {} bytes of this line left out …]", line.left_out_bytes);
    }
    if line.has_end {
        text.push('\n');
    }
    Ok(text)
}
