//! Tokens as providers report them, and what they cost.

use serde::Deserialize;

use super::lenient::Count;
use super::settings::Prices;
use crate::contract::{EngineError, Usage};

/// The `usage` object of an answer. Not every server has every part, and some name one otherwise.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReportedUsage {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
    prompt_tokens_details: Option<PromptDetails>,
    /// `DeepSeek`'s name of what was read from its cache.
    prompt_cache_hit_tokens: Count,
    /// Moonshot's.
    cached_tokens: Count,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Count,
}

/// What an answer has used, from all that was reported of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    prompt: u64,
    completion: u64,
    cached: u64,
    reasoning: u64,
}

impl Used {
    /// Takes a report. Some servers send a running total with each chunk, others one part here and one there: each part
    /// is the last one that was not 0.
    pub(super) fn take(&mut self, reported: ReportedUsage) {
        let last = |part: &mut u64, names: &[Count]| {
            if let Some(count) = names.iter().find(|count| count.0 > 0) {
                *part = count.0;
            }
        };
        last(&mut self.prompt, &[reported.prompt_tokens, reported.input_tokens]);
        last(&mut self.completion, &[reported.completion_tokens, reported.output_tokens]);
        let details = reported.prompt_tokens_details.unwrap_or_default().cached_tokens;
        last(&mut self.cached, &[details, reported.prompt_cache_hit_tokens, reported.cached_tokens]);
        last(&mut self.reasoning, &[reported.completion_tokens_details.unwrap_or_default().reasoning_tokens]);
    }

    /// The contract's view of one model call, priced where prices are known.
    pub(super) fn priced(self, rates: Option<Rates>) -> Usage {
        let usage = Usage {
            input_tokens: self.prompt.saturating_sub(self.cached),
            output_tokens: self.completion,
            cache_tokens: self.cached,
            thinking_tokens: self.reasoning,
            cost_nanos: None,
        };
        Usage { cost_nanos: rates.map(|rates| rates.cost_nanos(&usage)), ..usage }
    }
}

/// Prices in trillionths of a dollar per token: whole numbers, down to a millionth of a dollar per million tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    input: i128,
    output: i128,
    cache: i128,
}

impl Rates {
    pub(crate) fn new(prices: Prices) -> Result<Self, EngineError> {
        Ok(Self {
            input: picodollars_per_token(prices.input)?,
            output: picodollars_per_token(prices.output)?,
            cache: picodollars_per_token(prices.cache.unwrap_or(prices.input))?,
        })
    }

    /// Summed exactly and rounded once.
    pub(crate) fn cost_nanos(self, usage: &Usage) -> i64 {
        let picodollars = i128::from(usage.input_tokens) * self.input
            + i128::from(usage.output_tokens) * self.output
            + i128::from(usage.cache_tokens) * self.cache;
        i64::try_from((picodollars + 500) / 1000).unwrap_or(i64::MAX)
    }
}

fn picodollars_per_token(dollars_per_million: f64) -> Result<i128, EngineError> {
    // A million dollars per million tokens: above it is a mistake, and below it nothing can overflow.
    if !(0.0..=1e6).contains(&dollars_per_million) {
        return Err(EngineError::Unavailable(format!(
            "{dollars_per_million} is not a price per million tokens"
        )));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range is checked above, and the value is rounded"
    )]
    Ok((dollars_per_million * 1e6).round() as i128)
}

/// The sum of two model calls. That of a known and an unknown cost is the known one.
pub(crate) fn sum(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_add(b.input_tokens),
        output_tokens: a.output_tokens.saturating_add(b.output_tokens),
        cache_tokens: a.cache_tokens.saturating_add(b.cache_tokens),
        thinking_tokens: a.thinking_tokens.saturating_add(b.thinking_tokens),
        cost_nanos: match (a.cost_nanos, b.cost_nanos) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        },
    }
}
