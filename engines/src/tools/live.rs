//! The output of a running tool, for those who watch it.

use std::fmt::Write;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::text;

/// The longest piece; also what is kept for a reader that is slow.
const PIECE_BYTES: usize = 64 * 1024;

/// The most of one call that is shown while it runs. Its end is in the result.
const TOTAL_BYTES: usize = 1024 * 1024;

/// Passes text on without ever waiting for the reader: what comes while it is busy is joined, and what is then too
/// much is left out.
#[derive(Debug)]
pub(super) struct Live {
    output: Option<Sender<String>>,
    pending: String,
    left_out_bytes: usize,
    passed_bytes: usize,
}

impl Live {
    pub(super) fn new(output: Sender<String>) -> Self {
        Self { output: Some(output), pending: String::new(), left_out_bytes: 0, passed_bytes: 0 }
    }

    pub(super) fn push(&mut self, piece: &str) {
        if self.output.is_none() {
            return;
        }
        // Once something is left out, what follows is too until the note is passed on: a view has no holes unsaid.
        let room = if self.left_out_bytes > 0 { 0 } else { PIECE_BYTES - self.pending.len() };
        let fitting = text::fitting(piece, room);
        self.pending.push_str(fitting);
        self.left_out_bytes += piece.len() - fitting.len();
        self.offer();
    }

    /// Passes on what waits, if the reader has room.
    pub(super) fn offer(&mut self) {
        let Some(output) = self.output.as_ref().filter(|_| self.waits()) else { return };
        let mut piece = std::mem::take(&mut self.pending);
        let length = piece.len();
        let is_last = self.passed_bytes + length >= TOTAL_BYTES;
        if is_last {
            piece.push_str("\n[… the output goes on; its end will be in the result …]\n");
        } else if self.left_out_bytes > 0 {
            let _ = write!(piece, "\n[… {} bytes not shown …]\n", self.left_out_bytes);
        }
        match output.try_send(piece) {
            Ok(()) => {
                self.passed_bytes += length;
                self.left_out_bytes = 0;
            }
            Err(TrySendError::Full(mut piece)) => {
                piece.truncate(length);
                self.pending = piece;
                return;
            }
            Err(TrySendError::Closed(_)) => self.output = None,
        }
        if is_last {
            self.output = None;
        }
    }

    /// Whether something waits for the reader.
    pub(super) fn waits(&self) -> bool {
        self.output.is_some() && (!self.pending.is_empty() || self.left_out_bytes > 0)
    }

    /// Ready when the reader has room for what waits, or will never have any. Safe to drop.
    pub(super) async fn room(&self) {
        match &self.output {
            // The permit is given back; nobody else sends in this call.
            Some(output) if self.waits() => drop(output.reserve().await),
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_what_fits_and_is_told_what_does_not() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let mut live = Live::new(sender);
        live.push("a");
        live.push("b");
        live.push(&"c".repeat(PIECE_BYTES));
        live.push("d");
        assert_eq!(receiver.recv().await.unwrap(), "a");
        live.room().await;
        live.offer();
        let piece = receiver.recv().await.unwrap();
        assert!(piece.starts_with("bccc") && piece.ends_with("c\n[… 2 bytes not shown …]\n"));
        assert!(!live.waits());
    }

    #[tokio::test]
    async fn no_more_is_shown_than_the_bound() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1_000);
        let mut live = Live::new(sender);
        for _ in 0..1_000 {
            live.push(&"x".repeat(10_000));
        }
        drop(live);
        let mut total = String::new();
        while let Some(piece) = receiver.recv().await {
            total.push_str(&piece);
        }
        assert!(total.len() < TOTAL_BYTES + PIECE_BYTES);
        assert!(total.ends_with("its end will be in the result …]\n"));
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_is_no_trouble() {
        let (sender, _) = tokio::sync::mpsc::channel(1);
        let mut live = Live::new(sender);
        live.push("a");
        assert!(!live.waits());
    }
}
