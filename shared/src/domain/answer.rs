//! What a turn answers, and what it used.

use serde::{Deserialize, Serialize};

use super::{EngineKind, JobId, MessageId, SessionId, Truncated, TurnId};

/// The content of every answer to a job that was cancelled.
pub const CANCELLED_TEXT: &str = "(target session cancelled)";

/// Tokens and cost as whole numbers, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were not read from the provider's cache.
    pub input_tokens: i64,
    /// Output tokens.
    pub output_tokens: i64,
    /// Input tokens read from the provider's cache.
    pub cache_tokens: i64,
    /// Cost in billionths of a US dollar; `None` where it is not known.
    pub cost_nanos: Option<i64>,
}

impl Usage {
    /// Whether anything was reported.
    pub fn is_known(&self) -> bool {
        *self != Self::default()
    }

    /// Adds what something else used. The sum of a known and an unknown cost is the known one.
    pub fn add(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_tokens += other.cache_tokens;
        self.cost_nanos = match (self.cost_nanos, other.cost_nanos) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

/// Tokens and cost as clients see them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenUsage {
    /// Input tokens that were not read from the provider's cache; `null` where nothing was reported.
    pub input: Option<i64>,
    /// Output tokens; `null` where nothing was reported.
    pub output: Option<i64>,
    /// Input tokens read from the provider's cache; `null` where nothing was reported.
    pub cache: Option<i64>,
    /// Cost in US dollars; `null` where it is not known, and where it is known in part, that part.
    pub cost: Option<f64>,
}

impl From<Usage> for TokenUsage {
    /// What model calls used. No call uses nothing, so where nothing is counted, nothing was reported.
    fn from(usage: Usage) -> Self {
        if usage.is_known() { Self::total(usage) } else { Self::default() }
    }
}

impl TokenUsage {
    /// A sum that is 0 where there is nothing in it.
    pub fn total(usage: Usage) -> Self {
        Self {
            input: Some(usage.input_tokens),
            output: Some(usage.output_tokens),
            cache: Some(usage.cache_tokens),
            cost: usage.cost_nanos.map(dollars),
        }
    }
}

/// Billionths of a dollar as dollars.
#[expect(clippy::cast_precision_loss, reason = "2^53 nanodollars are nine million dollars")]
pub(crate) fn dollars(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

/// Where the model's memory of what came before this turn came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContextSource {
    /// From the engine's own conversation.
    Native,
    /// From the stored messages.
    Replay,
    /// There was nothing before.
    Empty,
}

/// The answer to one job: the same shape for every engine, direct or injected, as JSON or as a `done` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatResult {
    /// The session.
    pub session_id: SessionId,
    /// The job that is answered.
    pub job_id: JobId,
    /// The job's id again: it is the correlation id.
    pub correlation_id: JobId,
    /// The turn that answered; absent where the job was cancelled before any turn took it.
    pub turn_id: Option<TurnId>,
    /// The message that holds the answer.
    pub message_id: Option<MessageId>,
    /// The agent.
    pub agent: String,
    /// Its engine.
    pub engine: EngineKind,
    /// The model that answered.
    pub model: Option<String>,
    /// The answer's text.
    pub content: String,
    /// Model calls of the turn, at least 1; 0 only where no turn ran.
    pub iterations: i64,
    /// How long the turn took, in milliseconds.
    pub duration_ms: i64,
    /// What the turn used; never cumulative.
    pub token_usage: TokenUsage,
    /// Whether the message was sent while the agent worked.
    pub injected: bool,
    /// Whether the turn was cancelled.
    pub cancelled: bool,
    /// Why the provider cut the answer short; `null` where it did not.
    #[serde(default)]
    pub truncated: Option<Truncated>,
    /// Where the model's memory came from.
    pub context_source: ContextSource,
}
