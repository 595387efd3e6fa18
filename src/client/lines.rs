//! Standard input, line by line: messages, and answers to what the agent asks meanwhile.

use std::collections::VecDeque;
use std::io::{self, BufRead, IsTerminal};

use nix::sys::termios::{FlushArg, tcflush};
use tokio::sync::mpsc;

/// Lines that are read ahead, and messages that wait because a question came first.
const LINES: usize = 64;

/// The lines that a person types, or that a file or a program has for us.
///
/// What was typed before a question was shown cannot be its answer: it stays a message.
#[derive(Debug)]
pub(super) struct Lines {
    /// The reader, once somebody has asked for a line.
    reader: Option<mpsc::Receiver<String>>,
    /// Messages that were typed before a question was shown.
    waiting: VecDeque<String>,
    /// Whether a person sits there, who sees what is asked and can answer it.
    is_manned: bool,
}

impl Lines {
    /// Nothing is read yet: what nobody asks for is left to whatever runs next in the terminal.
    pub(super) fn new() -> Self {
        let is_manned = io::stdin().is_terminal() && io::stderr().is_terminal();
        Self { reader: None, waiting: VecDeque::new(), is_manned }
    }

    /// The next message; `None`: there are no more. Safe to drop and call again.
    pub(super) async fn message(&mut self) -> Option<String> {
        match self.waiting.pop_front() {
            Some(line) => Some(line),
            None => self.reader.get_or_insert_with(read).recv().await,
        }
    }

    /// Puts aside what was typed so far, so that the next line is an answer. Whether there will be one: somebody has to
    /// sit there, and whoever typed so far ahead that it was not all read yet is not asked.
    pub(super) fn expect_answer(&mut self) -> bool {
        if !self.is_manned {
            return false;
        }
        let Some(reader) = &mut self.reader else {
            // Nothing is a message here, and an answer it must not be.
            let is_flushed = tcflush(io::stdin(), FlushArg::TCIFLUSH).is_ok();
            if is_flushed {
                self.reader = Some(read());
            }
            return is_flushed;
        };
        while self.waiting.len() < LINES {
            match reader.try_recv() {
                Ok(line) => self.waiting.push_back(line),
                Err(error) => return error == mpsc::error::TryRecvError::Empty,
            }
        }
        false
    }

    /// The answer; `None`: there will be none any more. Safe to drop and call again.
    pub(super) async fn answer(&mut self) -> Option<String> {
        match &mut self.reader {
            Some(reader) => reader.recv().await,
            None => None,
        }
    }
}

/// Reads standard input. Reading blocks, and nothing waits for the thread that does.
fn read() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(lines: &[&str]) -> (Lines, mpsc::Sender<String>) {
        let (sender, receiver) = mpsc::channel(LINES);
        for line in lines {
            sender.try_send((*line).to_owned()).unwrap();
        }
        (Lines { reader: Some(receiver), waiting: VecDeque::new(), is_manned: true }, sender)
    }

    #[tokio::test]
    async fn what_was_typed_before_a_question_is_a_message_and_not_its_answer() {
        let (mut lines, sender) = typed(&["one", "two"]);

        assert!(lines.expect_answer());
        sender.try_send("yes".to_owned()).unwrap();
        sender.try_send("three".to_owned()).unwrap();

        assert_eq!(lines.answer().await.as_deref(), Some("yes"));
        for message in ["one", "two", "three"] {
            assert_eq!(lines.message().await.as_deref(), Some(message));
        }
    }

    #[tokio::test]
    async fn nobody_is_asked_who_is_not_there_or_far_ahead() {
        let (mut ended, sender) = typed(&["one"]);
        drop(sender);
        assert!(!ended.expect_answer());
        assert_eq!(ended.message().await.as_deref(), Some("one"));

        let (mut ahead, _sender) = typed(&["line"; LINES]);
        assert!(!ahead.expect_answer());

        let (mut file, _sender) = typed(&[]);
        file.is_manned = false;
        assert!(!file.expect_answer());
    }
}
