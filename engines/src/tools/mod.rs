//! Tools for engines that run their own loop, and where they come from ([`ToolSource`]).

mod source;

pub use self::source::{ToolContext, ToolOutcome, ToolSource, ToolSpec};
