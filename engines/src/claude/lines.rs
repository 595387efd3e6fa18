//! Lines of JSON from a stream: bounded, and mended where they would break what comes after.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The longest line that is read; a longer one is dropped.
pub(super) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// How much may wait to be read. The stream is left alone above that, so its writer waits.
const WAITING_BYTES: usize = 2 * MAX_LINE_BYTES;
const WAITING_LINES: usize = 1024;

/// What a stream brought.
#[derive(Debug)]
pub(super) enum Read {
    Json(Value),
    /// Not JSON: the beginning of it.
    Odd(String),
    /// Longer than [`MAX_LINE_BYTES`].
    TooLong(usize),
}

/// What waits holds its share of [`WAITING_BYTES`].
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) read: Read,
    _share: OwnedSemaphorePermit,
}

/// A channel for [`follow`].
pub(super) fn channel() -> (mpsc::Sender<Waiting>, mpsc::Receiver<Waiting>) {
    mpsc::channel(WAITING_LINES)
}

/// Reads until the stream ends or nobody listens.
pub(super) async fn follow(mut stream: impl AsyncBufRead + Unpin, listener: mpsc::Sender<Waiting>) {
    let space = Arc::new(Semaphore::new(WAITING_BYTES));
    let mut line = Vec::new();
    while let Ok(Some(length)) = next_line(&mut stream, &mut line).await {
        let read = if length > MAX_LINE_BYTES { Read::TooLong(length) } else { parse(&line) };
        let share = u32::try_from(line.len()).unwrap_or(u32::MAX);
        let Ok(share) = Arc::clone(&space).acquire_many_owned(share).await else { return };
        if listener.send(Waiting { read, _share: share }).await.is_err() {
            return;
        }
        if line.capacity() > 1024 * 1024 {
            line = Vec::new();
        }
    }
}

/// Reads one line without its end and gives its length; of one that is too long only the length. `None` at the end.
async fn next_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    line.clear();
    let mut length = 0;
    loop {
        let piece = stream.fill_buf().await?;
        if piece.is_empty() {
            return Ok((length > 0).then_some(length));
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let piece = &piece[..end.unwrap_or(piece.len())];
        length += piece.len();
        if length <= MAX_LINE_BYTES {
            line.extend_from_slice(piece);
        } else {
            *line = Vec::new();
        }
        let used = piece.len() + usize::from(end.is_some());
        stream.consume(used);
        if end.is_some() {
            return Ok(Some(length));
        }
    }
}

fn parse(line: &[u8]) -> Read {
    let line = String::from_utf8_lossy(line);
    match serde_json::from_str(&mend(&line)) {
        Ok(value) => Read::Json(value),
        Err(_) => Read::Odd(line[..line.floor_char_boundary(1024)].to_owned()),
    }
}

/// JSON without the escapes that the store or a parser does not take: NUL, and halves of surrogate pairs.
fn mend(json: &str) -> Cow<'_, str> {
    if !json.contains("\\u0000") && !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        mended.push_str(&rest[..at]);
        rest = &rest[at..];
        let (kept, used) = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (&rest[..12], 12),
            (Some(0 | 0xD800..=0xDFFF), _) => ("\\ufffd", 6),
            (Some(_), _) => (&rest[..6], 6),
            (None, _) => {
                let escaped = rest[1..].chars().next().map_or(0, char::len_utf8);
                (&rest[..=escaped], 1 + escaped)
            }
        };
        mended.push_str(kept);
        rest = &rest[used..];
    }
    mended.push_str(rest);
    Cow::Owned(mended)
}

/// The UTF-16 unit of the `\uXXXX` at the start of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_cannot_take_is_replaced() {
        let cases = [
            (r#""a\u0000b""#, "a\u{FFFD}b"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ud83d!""#, "\u{FFFD}!"),
            (r#""\ude00\ud83d""#, "\u{FFFD}\u{FFFD}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}😀"),
            (r#""\\u0000 \\ud83d""#, "\\u0000 \\ud83d"),
            (r#""\n\ud83dé\u00e9""#, "\n\u{FFFD}éé"),
        ];
        for (json, expected) in cases {
            let value: Value = serde_json::from_str(&mend(json)).unwrap();
            assert_eq!(value, expected, "{json}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_said_and_the_next_one_is_read() {
        let mut stream = vec![b'x'; MAX_LINE_BYTES + 1];
        stream.extend_from_slice(b"\n{\"a\":1}\nno json\n\xff\n{\"last\":1}");
        let (sender, mut lines) = channel();
        follow(&stream[..], sender).await;
        let mut read = Vec::new();
        while let Some(waiting) = lines.recv().await {
            read.push(format!("{:?}", waiting.read));
        }
        let expected = [
            format!("TooLong({})", MAX_LINE_BYTES + 1),
            "Json(Object {\"a\": Number(1)})".to_owned(),
            "Odd(\"no json\")".to_owned(),
            "Odd(\"\u{FFFD}\")".to_owned(),
            "Json(Object {\"last\": Number(1)})".to_owned(),
        ];
        assert_eq!(read, expected);
    }
}
