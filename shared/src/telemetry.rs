//! Logs: one line an event, to standard error.

use std::fmt;
use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// The `[log]` section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What to log, as `level` or `target=level,…`.
    pub filter: String,
    /// How to write it.
    pub format: Format,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self { filter: "info,sqlx=warn,apalis=warn".to_owned(), format: Format::Text }
    }
}

/// Sends all log events of this process to standard error from now on.
///
/// # Errors
/// The filter cannot be read; the text says where.
pub fn init(settings: &Settings) -> Result<(), String> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(|error| error.to_string())?;
    let lines = tracing_subscriber::fmt()
        .fmt_fields(debug_fn(field).delimited(" "))
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let done = match settings.format {
        Format::Text => lines.with_target(false).try_init(),
        // JSON escapes by itself.
        Format::Json => lines.json().flatten_event(true).try_init(),
    };
    done.map_err(|error| error.to_string())
}

/// Writes a field so that it stays within its line: texts of providers and programs may have line ends, and sequences that
/// a terminal obeys.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let name = field.name();
    if name.starts_with("log.") {
        return Ok(());
    }
    if name != "message" {
        write!(writer, "{}=", name.strip_prefix("r#").unwrap_or(name))?;
    }
    escape(writer, &format!("{value:?}"))
}

fn escape(writer: &mut impl fmt::Write, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        let (clean, from) = rest.split_at(at);
        let mut letters = from.chars();
        writer.write_str(clean)?;
        if let Some(letter) = letters.next() {
            write!(writer, "{}", letter.escape_default())?;
        }
        rest = letters.as_str();
    }
    writer.write_str(rest)
}

/// Control characters, line separators, and what turns the direction of a text.
fn is_harmful(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_within_its_line_and_moves_no_cursor() {
        for (text, expected) in [
            ("plain — ö", "plain — ö"),
            ("a\nERROR forged", "a\\nERROR forged"),
            ("a\r\tb", "a\\r\\tb"),
            ("\u{1b}[2Jx\u{9b}", "\\u{1b}[2Jx\\u{9b}"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            let mut written = String::new();
            escape(&mut written, text).unwrap();
            assert_eq!(written, expected);
        }
    }
}
