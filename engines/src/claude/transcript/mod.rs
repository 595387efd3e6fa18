//! The transcripts of Claude Code on disk: where they are, what they say, and how they are copied, begun and deleted.
//!
//! A native session is a file of JSON lines, `projects/<working directory>/<session>.jsonl` below the configuration
//! folder. Some lines are *entries* of the conversation, a tree in which a resume takes the branch that was written
//! last. All facts about it were found by experiment with version 2.1.332 of the CLI.
//!
//! Everything here blocks on the file system. No process may have a session open that is deleted: nothing locks it. One that
//! is copied may be open in a process that works on no turn of ours: what has been answered is on disk by then, and what is
//! written meanwhile stands behind it.

mod chain;
mod check;
mod cut;
mod entry;
mod file;
mod fork;
mod look_up;
mod message;
mod object;
mod path;
mod seed;
mod side_files;
mod title;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use self::file::Transcript;
pub(super) use self::path::TEMPORARY;
use self::seed::{Seed, Seeded};
use self::side_files::SideFiles;
use crate::contract::{AssistantMessage, ContextMessage, EngineError, Fork, Forked, Native};

/// The transcripts below one configuration folder.
#[derive(Debug, Clone)]
pub struct Transcripts {
    config_dir: PathBuf,
}

/// What a transcript says of a user's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// The message is not in the conversation.
    Absent,
    /// It is, and has not been answered. With what came after it.
    Open(Vec<Entry>),
    /// It is, and has been answered. With what came after it, to the answer.
    Answered(Vec<Entry>),
}

/// What the conversation has after a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A message of the model, with its anchor. Its cost in money is not known.
    Message(AssistantMessage),
    /// The result of a tool.
    Result {
        /// The call.
        call: String,
        /// The tool's name, where the call is after the message too.
        name: Option<String>,
        /// Whether it did what it was called for.
        success: bool,
        /// What the model was told.
        text: String,
        /// Its anchor.
        anchor: String,
    },
}

impl Transcripts {
    /// The transcripts of the CLI whose `CLAUDE_CONFIG_DIR` this is.
    pub fn new(config_dir: impl Into<PathBuf>) -> Self {
        Self { config_dir: config_dir.into() }
    }

    /// Where the transcript of a session is, or will be. It is found in the folder of any working directory, as the CLI
    /// finds it.
    pub fn path(&self, native: &Native) -> PathBuf {
        path::existing(&self.config_dir, native)
            .or_else(|| path::expected(&self.config_dir, native))
            // A name that no session has.
            .unwrap_or_else(|| self.config_dir.join("projects").join("none.jsonl"))
    }

    /// Whether the session is there, with something said in it: one that the CLI resumes. A file in which nothing was said
    /// the CLI neither resumes nor begins anew; [`Self::delete`] clears the way.
    pub fn exists(&self, native: &Native) -> bool {
        self.read(native).is_ok_and(|transcript| transcript.is_some_and(|found| !found.entries.is_empty()))
    }

    /// Checks that the session can be resumed: its transcript is there, and has what is stored of the session, of which
    /// `anchor` is the newest. An end that was half written is removed. No process may have the session open.
    ///
    /// # Errors
    /// [`EngineError::ResumeDropped`] where the transcript is not there; [`EngineError::Behind`] where it lacks something;
    /// [`EngineError::Unavailable`] where that cannot be found out now.
    pub fn check(&self, native: &Native, anchor: Option<&str>) -> Result<(), EngineError> {
        match path::existing(&self.config_dir, native) {
            Some(path) => check::resume(&path, anchor),
            None => Err(missing(native)),
        }
    }

    /// Looks a user's message up by the uuid under which it was sent, on the branch that a resume takes.
    ///
    /// What came after it goes up to its answer or its interruption, past prompts that were sent in between: a turn that
    /// was cut off goes on by one.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] where the transcript cannot be read.
    pub fn find(&self, native: &Native, message_id: &str) -> Result<Seen, EngineError> {
        let read = self.read(native).map_err(|error| unavailable("read", native, &error))?;
        Ok(read.map_or(Seen::Absent, |transcript| look_up::find(&transcript.entries, message_id)))
    }

    /// Copies a session up to an anchor, with the large results of tools that the copy names. The copy is on disk when this
    /// returns.
    ///
    /// # Errors
    /// [`EngineError::ForkFailed`]: nothing of the copy is left. [`EngineError::ResumeDropped`] where there is no
    /// transcript, [`EngineError::Behind`] where it lacks the anchor or something before it: nothing was written.
    pub fn fork(&self, fork: &Fork) -> Result<Forked, EngineError> {
        let failed = |reason: String| EngineError::ForkFailed(reason);
        let source = path::existing(&self.config_dir, &fork.source).ok_or_else(|| missing(&fork.source))?;
        let target = path::expected(&self.config_dir, &fork.into)
            .filter(|target| !target.exists())
            .ok_or_else(|| failed(format!("{} cannot be a new session", fork.into.id)))?;
        let transcript = Transcript::read(&source).map_err(|error| check::unreadable(&error))?;
        let last = cut::cut(&transcript.entries, &fork.at)
            .and_then(|cut| cut.kept(&transcript.entries).last())
            .ok_or_else(|| lacks(&fork.source, &fork.at))?;
        check::copy(&source, &last.uuid)?;
        let mut files = SideFiles::new(&source, &target);
        let copy = fork::Copy {
            source: &fork.source.id,
            into: &fork.into.id,
            title: fork.title.as_deref(),
            now: time(Timestamp::now()),
        };
        let copied =
            copy.make(&transcript, &fork.at, &mut files).ok_or_else(|| lacks(&fork.source, &fork.at))?;
        let written = files.copy().and_then(|()| file::write_new(&target, &copied.lines));
        match written {
            Ok(()) => Ok(Forked { anchors: copied.anchors }),
            Err(error) => {
                // What has come there meanwhile is not ours.
                if error.kind() != io::ErrorKind::AlreadyExists {
                    let _ = remove(&target);
                }
                Err(failed(error.to_string()))
            }
        }
    }

    /// Writes a new session in which this has been said, and gives the anchors of the model's messages in it, in order. The
    /// CLI resumes it, and the model takes the conversation for its own; `model` is named as the one that wrote it. Where
    /// nothing has been said, nothing is written: that is a session that begins.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] where it cannot be written, or is there already.
    pub fn seed(
        &self,
        native: &Native,
        context: &[ContextMessage],
        model: &str,
    ) -> Result<Vec<String>, EngineError> {
        let cwd = path::real(&native.cwd);
        let Seeded { lines, anchors } =
            Seed::new(&native.id, &cwd, model, time(Timestamp::now())).make(context);
        if lines.is_empty() {
            return Ok(anchors);
        }
        path::expected(&self.config_dir, native)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
            .and_then(|path| file::write_new(&path, &lines))
            .map_err(|error| unavailable("written", native, &error))?;
        Ok(anchors)
    }

    /// The total cost in US dollars from which a process that resumes the session counts on; `None`: from nothing.
    ///
    /// The CLI writes it down when it ends in order, by the end of its input or SIGTERM. What a killed process has spent
    /// is not in it, and a copy has none.
    pub fn saved_cost(&self, native: &Native) -> Option<f64> {
        let transcript = self.read(native).ok()??;
        transcript.notes("cost-state", &native.id).next_back()?.get("totalCostUSD")
    }

    /// Deletes a session with all that belongs to it; one that is not there is deleted.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with what could not be deleted.
    pub fn delete(&self, native: &Native) -> Result<(), EngineError> {
        let Some(expected) = path::expected(&self.config_dir, native) else { return Ok(()) };
        let existing = path::existing(&self.config_dir, native);
        let aside = ["file-history", "session-env"].map(|name| self.config_dir.join(name).join(&native.id));
        let elsewhere = existing.filter(|path| *path != expected);
        let outputs: Vec<_> = [&expected]
            .into_iter()
            .chain(&elsewhere)
            .flat_map(|path| path::outputs(&self.config_dir, path))
            .collect();
        [expected]
            .iter()
            .chain(&elsewhere)
            .try_for_each(|path| remove(path))
            .and_then(|()| {
                aside.iter().chain(&outputs).try_for_each(|folder| gone(fs::remove_dir_all(folder)))
            })
            .map_err(|error| unavailable("deleted", native, &error))
    }

    fn read(&self, native: &Native) -> io::Result<Option<Transcript>> {
        let Some(path) = path::existing(&self.config_dir, native) else { return Ok(None) };
        match Transcript::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }
}

/// Removes a transcript, whole or half written, and its folder.
fn remove(transcript: &Path) -> io::Result<()> {
    gone(fs::remove_file(transcript))?;
    gone(fs::remove_file(file::partial(transcript)))?;
    gone(fs::remove_dir_all(transcript.with_extension("")))
}

/// A time as transcripts have it.
fn time(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// What was not there is gone.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn missing(native: &Native) -> EngineError {
    EngineError::ResumeDropped(format!("there is no transcript of {}", native.id))
}

fn lacks(native: &Native, at: &str) -> EngineError {
    EngineError::Behind(format!("{} has no message {at}", native.id))
}

fn unavailable(what: &str, native: &Native, error: &io::Error) -> EngineError {
    EngineError::Unavailable(format!("the transcript of {} cannot be {what}: {error}", native.id))
}
