//! Chain entries: the lines that make up the conversation.

use super::object::Object;

/// What a chain entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A prompt, a tool result, or a note of the CLI.
    User,
    /// One content block of a message of the model.
    Assistant,
    /// What the CLI puts beside the messages; also a message that came during a turn.
    Attachment,
    /// A note that the model does not see, such as the boundary of a compaction.
    System,
    /// Progress of a tool: older CLIs put it between the others, and nothing copies it.
    Progress,
}

impl Kind {
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "attachment" => Self::Attachment,
            "system" => Self::System,
            "progress" => Self::Progress,
            _ => return None,
        })
    }

    /// Whether it is a message of one side or the other.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::User | Self::Assistant)
    }
}

/// A line of the main chain. The file is a tree of them.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) uuid: String,
    pub(super) line: Object,
}

impl Entry {
    /// The entry that a line is; the line itself where it is none, or one of a sub-agent's side chain.
    pub(super) fn of(line: Object) -> Result<Self, Object> {
        let kind = line.get::<String>("type").and_then(|name| Kind::of(&name));
        match (kind, line.get("uuid")) {
            (Some(kind), Some(uuid)) if !line.is("isSidechain") => Ok(Self { kind, uuid, line }),
            _ => Err(line),
        }
    }

    /// The entry before it.
    pub(super) fn parent(&self) -> Option<String> {
        self.line.get("parentUuid")
    }

    /// The entry before it; at the boundary of a compaction, where the chain is cut for the model, the last one before
    /// that.
    pub(super) fn predecessor(&self) -> Option<String> {
        self.parent().or_else(|| self.line.get("logicalParentUuid"))
    }

    /// The boundary of a compaction: what is before it is no longer sent to the model.
    pub(super) fn is_boundary(&self) -> bool {
        self.kind == Kind::System && self.line.raw("subtype") == Some("\"compact_boundary\"")
    }

    /// The summary that a compaction has written.
    pub(super) fn is_summary(&self) -> bool {
        self.kind == Kind::User && self.line.is("isCompactSummary")
    }

    /// The message that came during a turn, by the uuid under which it was sent.
    pub(super) fn folded(&self) -> Option<String> {
        let attachment: serde_json::Value = self.line.get("attachment")?;
        attachment["source_uuid"].as_str().map(str::to_owned)
    }

    /// Whether it carries the user's message of that uuid. Messages that waited together become one entry, which has the
    /// uuid of the last and names the others.
    pub(super) fn carries(&self, message_id: &str) -> bool {
        match self.kind {
            Kind::User => {
                let merged: Vec<String> = self.line.get("mergedSendUuids").unwrap_or_default();
                self.uuid == message_id || merged.iter().any(|id| id == message_id)
            }
            Kind::Attachment => self.folded().as_deref() == Some(message_id),
            _ => false,
        }
    }
}
