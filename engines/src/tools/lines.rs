//! Lines of a file, with a bound on what is kept of each.

use std::io::{self, BufRead};

/// How much of a line is kept.
pub(super) const LINE_BYTES: usize = 16 * 1024;

/// With a longer line a file is not read on: work is bounded by lines.
const LONGEST_BYTES: u64 = 64 * 1024 * 1024;

/// What is read at once, and how much of a file decides whether it is text.
pub(super) const CHUNK_BYTES: usize = 8 * 1024;

/// One line, without what ends it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Its beginning.
    pub(super) kept: Vec<u8>,
    pub(super) left_out_bytes: u64,
    /// How it ended: `\n` or nothing at the end of the file.
    pub(super) has_end: bool,
}

/// The next line, `None` at the end.
pub(super) fn next(reader: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Line::default();
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            let is_any = !line.kept.is_empty() || line.left_out_bytes > 0;
            return Ok(is_any.then_some(line));
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let content = &chunk[..end.unwrap_or(chunk.len())];
        let fitting = content.len().min(LINE_BYTES - line.kept.len());
        line.kept.extend_from_slice(&content[..fitting]);
        line.left_out_bytes += (content.len() - fitting) as u64;
        if line.left_out_bytes > LONGEST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line has more than 64 MiB"));
        }
        let used = content.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            line.has_end = true;
            return Ok(Some(line));
        }
    }
}

/// Whether a file looks like something else than text. Reads nothing that `next` does not read again.
pub(super) fn is_binary(reader: &mut impl BufRead) -> io::Result<bool> {
    Ok(reader.fill_buf()?.contains(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end_and_long_ones_are_cut() {
        let long = "x".repeat(LINE_BYTES + 5);
        let file = format!("a\r\n\n{long}\nlast");
        let mut reader = io::BufReader::with_capacity(7, file.as_bytes());
        let mut lines = Vec::new();
        while let Some(line) = next(&mut reader).unwrap() {
            lines.push((line.kept.len(), line.left_out_bytes, line.has_end));
        }
        assert_eq!(lines, [(2, 0, true), (0, 0, true), (LINE_BYTES, 5, true), (4, 0, false)]);
    }
}
