//! Cutting, decoding and cleaning text without breaking a character.

/// The longest beginning with at most `bytes` bytes.
pub(super) fn fitting(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The longest end with at most `bytes` bytes.
pub(super) fn fitting_end(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}

/// Makes text of bytes that come in pieces. What is not UTF-8 becomes U+FFFD; so does NUL, which no store takes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a character whose rest is still to come.
    rest: Vec<u8>,
}

impl Decoder {
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let whole = all.len() - unfinished(&all);
        self.rest = all.split_off(whole);
        clean(&all)
    }

    /// What the last piece left, which no other will complete.
    pub(super) fn finish(self) -> String {
        clean(&self.rest)
    }
}

/// The text of bytes: what is not UTF-8 becomes U+FFFD, and so does NUL.
pub(crate) fn clean(bytes: &[u8]) -> String {
    without_nul(String::from_utf8_lossy(bytes).into_owned())
}

/// A text as it may leave an engine: no store takes NUL.
pub(crate) fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// How many bytes at the end are the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    // Only the last character can be unfinished, and it begins at one of the last three bytes.
    let Some(start) = tail.iter().rposition(|byte| *byte >= 0xC0) else { return 0 };
    match str::from_utf8(&tail[start..]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => tail.len() - start,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_two_pieces_stays_whole() {
        let text = "aé€😀z";
        for split in 0..=text.len() {
            let mut decoder = Decoder::default();
            let (first, second) = text.as_bytes().split_at(split);
            let decoded = decoder.push(first) + &decoder.push(second) + &decoder.finish();
            assert_eq!(decoded, text, "split at {split}");
        }
        let mut decoder = Decoder::default();
        let bytewise: String = text.as_bytes().chunks(1).map(|byte| decoder.push(byte)).collect();
        assert_eq!(bytewise, text);
    }

    #[test]
    fn what_is_no_text_is_replaced_and_nothing_else_is_lost() {
        for (bytes, expected) in [
            (&b"a\xFFb"[..], "a\u{fffd}b"),
            (b"a\0b", "a\u{fffd}b"),
            (b"cut \xE2\x82", "cut \u{fffd}"),
            (b"\xE2\x82\xE2\x82\xAC", "\u{fffd}€"),
        ] {
            let mut decoder = Decoder::default();
            assert_eq!(decoder.push(bytes) + &decoder.finish(), expected);
        }
    }

    #[test]
    fn cutting_never_breaks_a_character() {
        assert_eq!(fitting("aé€", 2), "a");
        assert_eq!(fitting_end("aé€", 4), "€");
        assert_eq!(fitting_end("ab", 9), "ab");
    }
}
