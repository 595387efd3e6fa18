//! Texts of bounded length.

use super::lenient::clean;

/// What is kept of a long result.
const HEAD_BYTES: usize = 16 * 1024;
const TAIL_BYTES: usize = 48 * 1024;

/// What a tool that bounds its own text may add in notes.
const NOTES_BYTES: usize = 1024;

/// What a tool said, as the model and the store get it: bounded, and without NUL. A text that has been through this
/// comes out as it is.
pub(crate) fn result(text: String) -> String {
    let text = clean(text);
    if text.len() <= HEAD_BYTES + TAIL_BYTES + NOTES_BYTES {
        text
    } else {
        cut(&text, HEAD_BYTES, TAIL_BYTES)
    }
}

/// The text with its middle left out where it is longer than head and tail.
pub(super) fn cut(text: &str, head: usize, tail: usize) -> String {
    if text.len() <= head.saturating_add(tail) {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} bytes left out …]\n{tail}")
}
