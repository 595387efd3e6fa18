//! Texts of bounded length: of what is too much, head and tail are kept.

use super::text;

const HEAD_BYTES: usize = 16 * 1024;
const TAIL_BYTES: usize = 48 * 1024;

/// The most that a tool's text has, notes about what was left out not counted.
pub(super) const TEXT_BYTES: usize = HEAD_BYTES + TAIL_BYTES;

/// What a tool that bounds its own text may add in notes.
const NOTES_BYTES: usize = 1024;

/// What a tool said, as the model and the store get it: bounded, and without NUL. A text that has been through this or
/// through [`Bounded`] comes out as it is.
pub(crate) fn result(text: String) -> String {
    let text = text::without_nul(text);
    if text.len() <= TEXT_BYTES + NOTES_BYTES { text } else { cut(&text, HEAD_BYTES, TAIL_BYTES) }
}

/// The text with its middle left out where it is longer than head and tail.
pub(crate) fn cut(text: &str, head: usize, tail: usize) -> String {
    if text.len() <= head.saturating_add(tail) {
        return text.to_owned();
    }
    let (head, tail) = (text::fitting(text, head), text::fitting_end(text, tail));
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}{}{tail}", note(left_out))
}

fn note(left_out: usize) -> String {
    format!("\n[… {left_out} bytes left out …]\n")
}

/// Takes any amount of text and needs bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    head: String,
    head_is_full: bool,
    tail: String,
    /// What was taken out of the tail's front.
    left_out_bytes: usize,
}

impl Bounded {
    pub(crate) fn push(&mut self, mut piece: &str) {
        if !self.head_is_full {
            let fitting = text::fitting(piece, HEAD_BYTES - self.head.len());
            self.head.push_str(fitting);
            piece = &piece[fitting.len()..];
            self.head_is_full = !piece.is_empty();
        }
        self.tail.push_str(piece);
        // Not at each piece: moving the whole tail for a few bytes would make a flood of lines slow.
        if self.tail.len() > 2 * TAIL_BYTES {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let kept = text::fitting_end(&self.tail, TAIL_BYTES).len();
        let excess = self.tail.len() - kept;
        self.tail.drain(..excess);
        self.left_out_bytes += excess;
    }

    pub(crate) fn finish(mut self) -> String {
        self.trim();
        if self.left_out_bytes > 0 {
            self.head += &note(self.left_out_bytes);
        }
        self.head + &self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        let mut bounded = Bounded::default();
        let text = "é".repeat(TEXT_BYTES / 2);
        for piece in text.as_bytes().chunks(1_000) {
            bounded.push(str::from_utf8(piece).unwrap());
        }
        assert_eq!(bounded.finish(), text);
    }

    #[test]
    fn of_too_much_head_and_tail_are_kept_and_the_rest_is_counted() {
        let mut bounded = Bounded::default();
        bounded.push("first\n");
        for _ in 0..100_000 {
            bounded.push("0123456789");
        }
        bounded.push("\nlast");
        let text = bounded.finish();
        let left_out = 6 + 1_000_000 + 5 - TEXT_BYTES;
        assert_eq!(result(text.clone()), text);
        assert!(text.starts_with("first\n") && text.ends_with("\nlast"));
        assert!(text.contains(&format!("\n[… {left_out} bytes left out …]\n")), "{left_out}");
        assert!(text.len() < TEXT_BYTES + 100);
    }
}
