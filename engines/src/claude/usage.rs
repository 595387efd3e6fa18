//! What the CLI says that something has used.

use serde_json::Value;

use super::protocol::TurnResult;
use crate::contract::Usage;
use crate::openai::dollars;
use crate::openai::usage::Rates;

/// The tokens of a `usage` object of the API; `previous` counts where a part is missing.
pub(super) fn tokens(usage: &Value, previous: Usage) -> Usage {
    let count = |name: &str| usage[name].as_u64();
    let input = match (count("input_tokens"), count("cache_creation_input_tokens")) {
        (None, None) => previous.input_tokens,
        (fresh, cached) => fresh.unwrap_or(0).saturating_add(cached.unwrap_or(0)),
    };
    Usage {
        input_tokens: input,
        output_tokens: count("output_tokens").unwrap_or(previous.output_tokens),
        cache_tokens: count("cache_read_input_tokens").unwrap_or(previous.cache_tokens),
        thinking_tokens: usage["output_tokens_details"]["thinking_tokens"]
            .as_u64()
            .unwrap_or(previous.thinking_tokens),
        cost_nanos: None,
    }
}

/// The running totals of a process. Sub-agents and summaries are in them, which the `usage` of a result leaves out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    tokens: Usage,
    dollars: f64,
}

impl Totals {
    /// Of the reply to `get_usage`.
    pub(super) fn of_session(reply: &Value) -> Option<Self> {
        let session = &reply["session"];
        Some(Self { tokens: sum(&session["model_usage"])?, dollars: session["total_cost_usd"].as_f64()? })
    }

    fn of_result(result: &TurnResult) -> Option<Self> {
        Some(Self { tokens: sum(&result.model_usage)?, dollars: result.total_cost? })
    }

    /// What was spent since, in billionths of a US dollar.
    fn nanos_since(&self, before: &Self) -> i64 {
        nanos(self.dollars - before.dollars)
    }
}

/// What is used between two results.
#[derive(Debug)]
pub(super) struct Meter {
    /// At the last result; `None`: unknown, after a resume that has not told.
    pub(super) before: Option<Totals>,
    pub(super) rates: Option<Rates>,
    /// What one turn may have cost when the model is called again.
    pub(super) max_cost_nanos: Option<i64>,
}

impl Meter {
    /// What was used since the last result. Without totals, what the result says itself.
    pub(super) fn read(&mut self, result: &TurnResult) -> Usage {
        let now = Totals::of_result(result);
        let before = self.before;
        self.before = now.or(before);
        let used = match (before, now) {
            (Some(before), Some(now)) => {
                let tokens = difference(now.tokens, before.tokens);
                // A total that is not in dollars means that the CLI knows no price.
                let dollars = Some(now.nanos_since(&before)).filter(|nanos| *nanos > 0);
                Usage { cost_nanos: dollars, ..tokens }
            }
            _ => tokens(&result.usage, Usage::default()),
        };
        self.priced(used)
    }

    /// Whether the running turn may not call the model again, by the reply to `get_usage`; and why.
    pub(super) fn is_over(&self, reply: &Value) -> Option<String> {
        let (now, before, most) = (Totals::of_session(reply)?, self.before?, self.max_cost_nanos?);
        let spent = now.nanos_since(&before);
        (spent >= most).then(|| {
            let (spent, most) = (dollars(spent), dollars(most));
            format!("it has cost {spent} USD, and its agent may spend {most} USD")
        })
    }

    /// With what it costs, where the CLI has not told.
    pub(super) fn priced(&self, usage: Usage) -> Usage {
        let is_nothing = usage.input_tokens + usage.output_tokens + usage.cache_tokens == 0;
        let configured = self.rates.map(|rates| rates.cost_nanos(&usage)).or(is_nothing.then_some(0));
        Usage { cost_nanos: usage.cost_nanos.or(configured), ..usage }
    }
}

/// The tokens of all models.
fn sum(models: &Value) -> Option<Usage> {
    let mut total = Usage::default();
    for model in models.as_object()?.values() {
        let count = |name: &str| model[name].as_u64().unwrap_or(0);
        total.input_tokens += count("inputTokens") + count("cacheCreationInputTokens");
        total.output_tokens += count("outputTokens");
        total.cache_tokens += count("cacheReadInputTokens");
        total.thinking_tokens += count("thinkingTokens");
    }
    Some(total)
}

fn difference(now: Usage, before: Usage) -> Usage {
    Usage {
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cache_tokens: now.cache_tokens.saturating_sub(before.cache_tokens),
        thinking_tokens: now.thinking_tokens.saturating_sub(before.thinking_tokens),
        cost_nanos: None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the largest integer")]
fn nanos(dollars: f64) -> i64 {
    (dollars * 1e9).round() as i64
}
