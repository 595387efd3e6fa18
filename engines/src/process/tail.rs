//! The end of a stream that nobody reads: drained all the while, and the last of it kept for error texts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

const LIMIT_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Reads until the stream ends.
    pub(super) async fn follow(self, mut stream: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; LIMIT_BYTES];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(LIMIT_BYTES);
        kept.drain(..excess);
    }

    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_a_stream_is_kept() {
        let tail = Tail::default();
        tail.push(&[b'a'; LIMIT_BYTES]);
        tail.push(b"end");
        assert_eq!(tail.text().len(), LIMIT_BYTES);
        assert!(tail.text().ends_with("aaaend"));
    }
}
