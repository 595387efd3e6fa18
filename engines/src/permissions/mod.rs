//! Which tool calls run, which are asked about first, and which never run.
//!
//! A rule names a tool as its engine does (`read_file`, `WebFetch`), tools by the beginning of their names (`files__*`,
//! `mcp__files__*`: all of an MCP server), or commands of a shell tool (`shell`, `Bash`) by their beginning (`shell(git push)`), word
//! by word: `shell(git push)` covers `git push origin`, not `git pushx`. The most specific rule that covers a call decides: a
//! longer command over a shorter one, any command over the tool, the tool over the beginning of its name, a longer such
//! beginning over a shorter one, any rule over `default`; among equals `deny` over `ask` over `allow`.
//!
//! A shell command is cut into its parts (`;`, `&&`, `|`, `$(…)`, backquotes, new lines and so on, quoted or not). Each part is
//! judged by itself and the strictest verdict counts: it is allowed only if every part is, and one part is enough to
//! ask or deny. The two sides read a part differently, each on its safe side (`command`): `allow` takes it as it is
//! written, and nothing that redirects; `ask` and `deny` see through quotes, assignments, paths and words such as `sudo`.
//!
//! This is a guard rail, no sandbox: a shell has more ways to spell a command than any rule foresees, so whoever must
//! be sure denies the shell tool itself, and allows by beginnings.

mod command;

use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

/// The tools whose commands rules can name: ours, and Claude Code's.
const SHELLS: [&str; 2] = ["shell", "Bash"];

/// An agent's permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// For calls that no rule covers.
    pub default: Verdict,
    /// What runs.
    pub allow: Vec<Rule>,
    /// What is asked about first.
    pub ask: Vec<Rule>,
    /// What never runs.
    pub deny: Vec<Rule>,
}

/// What becomes of a call. In the order of strictness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It runs.
    #[default]
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// What a permission is about: `tool`, `beginning of tools*` or `shell(beginning of a command)`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rule {
    tool: Named,
    /// The words with which a command begins; empty: every call of the tool.
    words: Vec<String>,
}

/// Which tools a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    /// Those whose names begin so. In the order of their lengths for one tool.
    Beginning(String),
    Tool(String),
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
        let (tool, beginning) = match text.trim().split_once('(') {
            Some((tool, rest)) => {
                let beginning = rest.strip_suffix(')').ok_or_else(|| invalid("its bracket is not closed"))?;
                (tool.trim(), Some(beginning))
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
        let Some(beginning) = beginning else {
            return Ok(Self { tool: named, words: Vec::new() });
        };
        if !SHELLS.contains(&tool) {
            return Err(invalid("only `shell` and `Bash` have commands"));
        }
        let words = command::plain_words(beginning)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| invalid("the brackets have to hold the beginning of one plain command"))?;
        Ok(Self { tool: named, words: words.into_iter().map(str::to_owned).collect() })
    }
}

impl TryFrom<String> for Rule {
    type Error = InvalidRule;

    fn try_from(text: String) -> Result<Self, InvalidRule> {
        text.parse()
    }
}

impl Permissions {
    /// What becomes of a call with these arguments.
    pub fn decide(&self, tool: &str, input: &Value) -> Verdict {
        let command = input.get("command").and_then(Value::as_str).filter(|_| SHELLS.contains(&tool));
        let Some(command) = command else {
            return self.judge(tool, None);
        };
        // A shell joins the lines; as it is written, the command ends there. Both have to pass.
        let joined = command.replace("\\\n", "");
        let parts = [command, &joined].into_iter().flat_map(command::parts);
        parts.map(|part| self.judge(tool, Some(&part))).max().unwrap_or_else(|| self.judge(tool, None))
    }

    /// The tools of which no call ever runs, as far as rules name them one by one.
    pub(crate) fn never(&self) -> impl Iterator<Item = &str> {
        let has_words = |tool: &str| {
            let mut others = self.allow.iter().chain(&self.ask);
            others.any(|other| other.tool.is(tool) && !other.words.is_empty())
        };
        let whole =
            self.deny.iter().filter(|rule| rule.words.is_empty()).filter_map(|rule| match &rule.tool {
                Named::Tool(tool) => Some(&**tool),
                Named::Beginning(_) => None,
            });
        whole.filter(move |tool| !has_words(tool))
    }

    /// The verdict of the most specific rule, among equals the strictest.
    fn judge(&self, tool: &str, part: Option<&command::Part<'_>>) -> Verdict {
        let lists = [(Verdict::Allow, &self.allow), (Verdict::Ask, &self.ask), (Verdict::Deny, &self.deny)];
        let rules =
            lists.into_iter().flat_map(|(verdict, rules)| rules.iter().map(move |rule| (verdict, rule)));
        rules
            .filter(|(verdict, rule)| rule.tool.names(tool) && rule.covers(*verdict, part))
            .map(|(verdict, rule)| (rule.words.len(), &rule.tool, verdict))
            .max()
            .map_or(self.default, |(_, _, verdict)| verdict)
    }
}

impl Named {
    fn is(&self, tool: &str) -> bool {
        matches!(self, Self::Tool(name) if name == tool)
    }

    fn names(&self, tool: &str) -> bool {
        match self {
            Self::Beginning(beginning) => tool.starts_with(&**beginning),
            Self::Tool(name) => name == tool,
        }
    }
}

impl Rule {
    fn covers(&self, verdict: Verdict, part: Option<&command::Part<'_>>) -> bool {
        match part {
            _ if self.words.is_empty() => true,
            None => false,
            Some(part) if verdict == Verdict::Allow => part.is_plainly(&self.words),
            Some(part) => part.may_be(&self.words),
        }
    }
}
