//! One rule: which calls it is about.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::command;
use super::paths::Pattern;
use super::runs::{Match, Run};
use super::{Subject, Verdict, names};

/// What a permission is about: `tool`, `beginning of tools*`, `shell(beginning of a command)` or `file_tool(paths)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    tool: Named,
    about: About,
}

/// Which calls of its tool a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    All,
    /// Those whose command begins with these words.
    Words(Vec<String>),
    /// Those whose path matches.
    Paths(Box<Pattern>),
}

/// Which tools a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    /// Those whose names begin so. In the order of their lengths for one tool.
    Beginning(String),
    Tool(String),
}

/// How surely a rule covers a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Covers {
    No,
    Perhaps,
    Yes,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` is no permission: {reason}")]
pub struct InvalidRule {
    rule: String,
    reason: &'static str,
}

impl FromStr for Rule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = |reason| InvalidRule { rule: text.to_owned(), reason };
        let (tool, inside) = match text.trim().split_once('(') {
            Some((tool, rest)) => {
                let inside = rest.strip_suffix(')').ok_or_else(|| invalid("its bracket is not closed"))?;
                (tool.trim(), Some(inside))
            }
            None => (text.trim(), None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let name = tool.strip_suffix('*').unwrap_or(tool);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(invalid("it has to be tool, beginning of tools*, or shell(beginning of a command)"));
        }
        let kind = if name == tool { Named::Tool } else { Named::Beginning };
        let named = kind(name.to_owned());
        let about = match inside {
            None => About::All,
            Some(paths) if names::is_file_tool(tool) => {
                let pattern = Pattern::new(paths).ok_or_else(|| {
                    invalid("the brackets have to hold a path, in which `*` and `**` may stand: `./src/**`")
                })?;
                About::Paths(Box::new(pattern))
            }
            Some(beginning) if names::is_shell(tool) => {
                let words = command::plain_words(beginning)
                    .filter(|words| !words.is_empty())
                    .ok_or_else(|| invalid("the brackets have to hold the beginning of one plain command"))?;
                About::Words(words.into_iter().map(str::to_owned).collect())
            }
            Some(_) => {
                return Err(invalid("only `shell` and `Bash` have commands, and only file tools have paths"));
            }
        };
        Ok(Self { tool: named, about })
    }
}

impl TryFrom<String> for Rule {
    type Error = InvalidRule;

    fn try_from(text: String) -> Result<Self, InvalidRule> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tool {
            Named::Tool(name) => f.write_str(name)?,
            Named::Beginning(name) => write!(f, "{name}*")?,
        }
        match &self.about {
            About::All => Ok(()),
            About::Words(words) => write!(f, "({})", words.join(" ")),
            About::Paths(pattern) => write!(f, "({pattern})"),
        }
    }
}

impl Rule {
    pub(super) fn is_whole(&self) -> bool {
        self.about == About::All
    }

    pub(super) fn has_words(&self) -> bool {
        matches!(self.about, About::Words(_))
    }

    /// The tool that it names, if it is one.
    pub(super) fn tool(&self) -> Option<&str> {
        match &self.tool {
            Named::Tool(tool) => Some(tool),
            Named::Beginning(_) => None,
        }
    }

    pub(super) fn named(&self) -> &Named {
        &self.tool
    }

    pub(super) fn names(&self, tool: &str) -> bool {
        self.tool.names(tool)
    }

    /// Whether it allows an alias of git's by its name.
    pub(super) fn is_alias(&self, run: &Run) -> bool {
        matches!(&self.about, About::Words(words) if run.is_alias(words))
    }

    /// Whether it names one tool, which is the same to rules as this one.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        self.tool().is_some() && self.names(tool)
    }

    pub(super) fn is_of_shells(&self) -> bool {
        self.tool.names(names::SHELL)
    }

    /// How specific it is: longer commands are. Of paths none is, so the strictest counts.
    pub(super) fn length(&self) -> usize {
        match &self.about {
            About::All => 0,
            About::Words(words) => words.len(),
            About::Paths(_) => 1,
        }
    }

    /// Whether a call is covered by it, in a list of rules with this verdict.
    pub(super) fn covers(&self, tool: &str, verdict: Verdict, subject: Subject<'_>) -> Covers {
        let is_named = match &self.about {
            // What may not be read or written by one tool may not by another.
            About::Paths(_) if verdict != Verdict::Allow => {
                self.tool().is_some_and(|own| names::does_the_same(own, tool))
            }
            _ => self.names(tool),
        };
        let is_strict = verdict != Verdict::Allow;
        match (&self.about, subject) {
            _ if !is_named => Covers::No,
            (About::All, _) => Covers::Yes,
            (About::Words(words), Subject::Part(part, runs)) => {
                let is_run = || runs.iter().any(|run| run.begins(words) == Match::Yes);
                if part.is_plainly(words) || (is_strict && is_run()) { Covers::Yes } else { Covers::No }
            }
            (About::Words(words), Subject::Run(run)) => run.begins(words).into(),
            (About::Paths(pattern), Subject::Path(place)) => pattern.covers(place, is_strict),
            (About::Words(_) | About::Paths(_), _) => Covers::No,
        }
    }
}
