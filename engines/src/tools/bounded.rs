//! A text of bounded length: of what is too much, head and tail are kept.

use super::text;
use std::fmt::Write;

const HEAD_BYTES: usize = 16 * 1024;
const TAIL_BYTES: usize = 48 * 1024;

/// The most that a tool's text has, notes about what was left out not counted.
pub(super) const TEXT_BYTES: usize = HEAD_BYTES + TAIL_BYTES;

/// Takes any amount of text and needs bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    head: String,
    head_is_full: bool,
    tail: String,
    /// What was taken out of the tail's front.
    left_out_bytes: u64,
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
        self.left_out_bytes += excess as u64;
    }

    pub(crate) fn finish(mut self) -> String {
        self.trim();
        if self.left_out_bytes > 0 {
            let _ = write!(self.head, "\n[… {} bytes left out …]\n", self.left_out_bytes);
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
        assert!(text.starts_with("first\n") && text.ends_with("\nlast"));
        assert!(text.contains(&format!("\n[… {left_out} bytes left out …]\n")), "{left_out}");
        assert!(text.len() < TEXT_BYTES + 100);
    }
}
