//! What a provider needs that others do not: as configured, or found out from what it refuses.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::failure::Failure;

/// What of a conversation has to be written otherwise for a provider. What is not set is found out: a refusal that names
/// it is answered by writing it otherwise, and remembered for the model as long as the process lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compat {
    /// Whether messages of one role may follow one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roles: Option<RoleOrder>,
    /// Where system messages may stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemPlace>,
    /// With which messages their reasoning is sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningReplay>,
    /// What ids of calls may look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<CallIds>,
}

/// Whether messages of one role may follow one another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoleOrder {
    /// They may.
    #[default]
    Any,
    /// A person's messages and the model's take turns: those of one role become one.
    Alternate,
}

/// Where system messages may stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemPlace {
    /// Anywhere.
    #[default]
    Any,
    /// Only one, as the first message; others become a person's.
    First,
    /// Nowhere: they become a person's.
    None,
}

/// With which messages their reasoning is sent back (`reasoning_content`, `reasoning`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningReplay {
    /// With those of exchanges in which tools were called.
    #[default]
    Calls,
    /// The same, and a message with calls that has none gets a blank one.
    Required,
    /// With all.
    All,
    /// With none.
    None,
}

/// What ids of calls may look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallIds {
    /// Anything.
    #[default]
    Any,
    /// Nine letters and digits.
    Short,
}

/// What holds for one model now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) roles: RoleOrder,
    pub(super) system: SystemPlace,
    pub(super) reasoning: ReasoningReplay,
    pub(super) call_ids: CallIds,
    /// Members that are not sent back.
    pub(super) dropped: BTreeSet<String>,
    /// Calls that have no signature get one that stands for none.
    pub(super) wants_signatures: bool,
}

/// What was found out about one model.
#[derive(Debug, Clone, Default)]
struct Found {
    compat: Compat,
    dropped: BTreeSet<String>,
    wants_signatures: bool,
}

/// What was found out, by model.
#[derive(Debug, Default)]
pub(super) struct Learned(Mutex<HashMap<Arc<str>, Found>>);

impl Learned {
    pub(super) fn needs(&self, compat: Compat, model: &str) -> Needs {
        let found =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned().unwrap_or_default();
        Needs {
            roles: compat.roles.or(found.compat.roles).unwrap_or_default(),
            system: compat.system.or(found.compat.system).unwrap_or_default(),
            reasoning: compat.reasoning.or(found.compat.reasoning).unwrap_or_default(),
            call_ids: compat.call_ids.or(found.compat.call_ids).unwrap_or_default(),
            dropped: found.dropped,
            wants_signatures: found.wants_signatures,
        }
    }

    /// Takes what a failure says against the request; `sent` are the opaque members that it had. Returns whether the
    /// request is written otherwise now.
    pub(super) fn learn(
        &self,
        compat: Compat,
        model: &Arc<str>,
        failure: &Failure,
        sent: &BTreeSet<&str>,
    ) -> bool {
        if !may_object(failure) {
            return false;
        }
        let before = self.needs(compat, model);
        let said = &failure.objection;
        {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Only models that sessions name are in it, and few of them object to anything.
            all.entry(Arc::clone(model)).or_default().take(said, sent);
        }
        let after = self.needs(compat, model);
        if after != before {
            tracing::info!(model = %model, ?after, "the provider has refused how the conversation was written");
        }
        after != before
    }
}

/// Whether a failure may be about how the conversation was written. Templates of llama.cpp and others fail with 500.
fn may_object(failure: &Failure) -> bool {
    let is_about_else =
        failure.overflows || matches!(failure.status(), Some(401..=403 | 408 | 413 | 429 | 503 | 529));
    !failure.objection.is_empty() && !is_about_else
}

impl Found {
    fn take(&mut self, said: &str, sent: &BTreeSet<&str>) {
        let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
        if says(&["alternat", "after role", "consecutive", "same role", "must not be followed by"])
            && says(&["role", "user", "assistant"])
        {
            self.compat.roles = Some(RoleOrder::Alternate);
        }
        if says(&[
            "system role",
            "system message",
            "role 'system'",
            "role \"system\"",
            "role: system",
            "role `system`",
            "developer instruction",
        ]) {
            if says(&[
                "beginning",
                "at the start",
                "be first",
                "be the first",
                "first message",
                "only one",
                "multiple",
                "only the first",
            ]) {
                self.compat.system = Some(SystemPlace::First);
            } else if says(&["not support", "unsupported", "not allowed", "not enabled", "not permitted"]) {
                self.compat.system = Some(SystemPlace::None);
            }
        }
        let misses = says(&[
            "missing",
            "must be passed",
            "must be provided",
            "is required",
            "must contain",
            "must include",
        ]);
        if said.contains("thought_signature") && misses {
            self.wants_signatures = true;
        } else if said.contains("reasoning_content") && misses {
            self.compat.reasoning = Some(ReasoningReplay::Required);
        } else {
            let refused = sent.iter().filter(|name| is_named(said, name)).map(|name| (*name).to_owned());
            self.dropped.extend(refused);
        }
        if says(&[
            "tool call id",
            "tool_call_id",
            "tool_call.id",
            "tool_calls",
            "toolcallid",
            "tool_use.id",
            "tool_use_id",
            "call_id",
            "tool id",
        ]) && says(&["length", "too long", "characters", "a-z", "pattern", "alphanumeric"])
        {
            self.compat.call_ids = Some(CallIds::Short);
        }
    }
}

/// Whether a refusal names a member. Names that are words of their own have to be quoted.
fn is_named(said: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    if name.contains('_') {
        return said.contains(&name);
    }
    ['"', '\'', '`', '.'].iter().any(|quote| said.contains(&format!("{quote}{name}")))
}

/// What a provider refuses to read, and where it says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Images; whether it takes none at all.
    Images {
        all: bool,
        message: Option<usize>,
    },
    Text {
        message: Option<usize>,
    },
}

/// Whether a failure is the provider's refusal to read what is in the conversation, and no objection to how it is written.
pub(super) fn refusal(failure: &Failure, has_images: bool) -> Option<Refusal> {
    let may_refuse = !failure.overflows
        && failure.is_reported
        && matches!(failure.status(), None | Some(400 | 404 | 415 | 422 | 451 | 500 | 501));
    if !may_refuse {
        return None;
    }
    let said = &failure.objection;
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let message = message_index(said);
    if has_images
        && says(&[
            "image",
            "vision",
            "multimodal",
            "multi-modal",
            "content type",
            "content_type",
            "media type",
        ])
    {
        let all = says(&[
            "support",
            "only text",
            "text only",
            "text-only",
            "must be a string",
            "not a multimodal",
            "no vision",
        ]);
        return Some(Refusal::Images { all, message });
    }
    let filters = [
        "content_filter",
        "content filter",
        "content management policy",
        "content_policy",
        "content policy",
        "contentpolicyviolation",
        "data_inspection_failed",
        "datainspectionfailed",
        "inappropriate content",
        "content exists risk",
        "moderation",
        "was flagged",
        "been flagged",
        "safety system",
        "sensitive content",
        "prohibited content",
        "usage policies",
        "usage policy",
    ];
    says(&filters).then_some(Refusal::Text { message })
}

/// The message that a refusal names, counted from the first of the request: `messages[3]`, `messages.3.content`,
/// `message at index 3`.
fn message_index(said: &str) -> Option<usize> {
    let number = |text: &str| {
        let text = text.trim_start_matches(['[', '.', '/', ' ', '"', '\'', ',', ':']);
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    };
    ["messages", "message at index", "message at position", "input at index"].iter().find_map(|before| {
        said.match_indices(before).find_map(|(at, found)| number(&said[at + found.len()..]))
    })
}
