//! Which tool calls run, which are asked about first, and which never run.
//!
//! A rule names a tool as its engine does (`read_file`, `WebFetch`), tools by the beginning of their names (`files__*`,
//! `mcp__files__*`: all of an MCP server), commands of a shell tool (`shell`, `Bash`) by their beginning (`shell(git push)`), word
//! by word, or paths of a file tool (`Read(./src/**)`, `paths`). The most specific rule that covers a call decides: a longer
//! command over a shorter one, any command or path over the tool, the tool over the beginning of its name, a longer such
//! beginning over a shorter one, any rule over `default`; among equals `deny` over `ask` over `allow`.
//!
//! *Shells.* Every tool that carries a command is a shell here: Claude Code's `Monitor` like its `Bash`, and a tool of an MCP server
//! with a `command` is one to the rules that ask or deny. A command is read twice (`command`, `runs`), and the strictest verdict
//! on anything in it counts: `allow` takes a part as it is written, and nothing that redirects; `ask` and `deny` see through
//! quotes, assignments, paths, wrappers such as `sudo` and `timeout`, `sh -c` and git's own options. Where a command cannot be
//! told, such as `$X` or `eval "$Y"`, and some rule asks about or denies commands, a person is asked.
//!
//! *Unknown tools.* `default = "allow"` covers the tools that are known here (`names`) and those of configured MCP servers. Where
//! there is a rule that asks or denies, any other tool is asked about.
//!
//! This is a guard rail, no sandbox: a shell has more ways to spell a command than any rule foresees, so whoever must
//! be sure denies the shell tool itself, and allows by beginnings.

mod command;
mod gate;
mod git;
mod lexer;
mod names;
mod paths;
mod programs;
mod rule;
mod runs;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::gate::Gate;
pub(crate) use self::paths::is_in_repository;
use self::rule::{Covers, Named};
pub use self::rule::{InvalidRule, Rule};
use self::runs::{Match, Run, runs};

/// An agent's permissions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// What of a call a rule is held against.
#[derive(Clone, Copy)]
enum Subject<'a> {
    /// The tool alone.
    Tool,
    /// A part of a command, as it is written, and all that it runs by itself.
    Part(&'a command::Part<'a>, &'a [Run]),
    /// Something that a command runs.
    Run(&'a Run),
    /// The path of a file tool.
    Path(&'a paths::Place),
}

impl Permissions {
    /// What becomes of a call with these arguments. Paths are those of this process's directory; see [`Gate`].
    pub fn decide(&self, tool: &str, input: &Value) -> Verdict {
        self.decide_in(tool, input, &std::env::current_dir().unwrap_or_default())
    }

    /// The same in a working directory.
    pub(crate) fn decide_in(&self, tool: &str, input: &Value, cwd: &std::path::Path) -> Verdict {
        if names::is_shell(tool) {
            return match names::command(input) {
                Some(Cow::Borrowed(command)) => self.command(tool, command),
                // It takes no such command.
                Some(Cow::Owned(words)) => self.judge(tool, Subject::Tool).max(self.command(tool, &words)),
                None => self.judge(tool, Subject::Tool),
            };
        }
        let own = match paths::Place::of(tool, input, cwd) {
            Some(place) => self.judge(tool, Subject::Path(&place)),
            None => self.judge(tool, Subject::Tool),
        };
        match names::command(input) {
            Some(command) => own.max(self.carried(tool, &command)),
            None => own,
        }
    }

    /// Whether nothing in it restricts anything.
    pub fn is_open(&self) -> bool {
        self.default == Verdict::Allow && !self.restricts()
    }

    /// The tools of which no call ever runs, as far as rules name them one by one.
    pub(crate) fn never(&self) -> impl Iterator<Item = &str> {
        let has_more = |tool: &str| {
            let mut others = self.allow.iter().chain(&self.ask);
            others.any(|other| other.is_about(tool) && !other.is_whole())
        };
        let whole = self.deny.iter().filter(|rule| rule.is_whole()).filter_map(Rule::tool);
        whole.filter(move |tool| !has_more(tool)).flat_map(names::same)
    }

    /// The verdict on a shell's command: the strictest on anything in it.
    fn command(&self, tool: &str, command: &str) -> Verdict {
        // A shell joins the lines; as it is written, the command ends there. Both have to pass.
        let joined = command.replace("\\\n", "");
        let parts = [command, &joined].into_iter().flat_map(command::parts);
        let written = parts.map(|part| self.judge(tool, Subject::Part(&part, &part.as_run()))).max();
        let written = written.unwrap_or_else(|| self.judge(tool, Subject::Tool));
        let runs = runs(command);
        runs.iter().map(|run| self.run(tool, run)).max().map_or(written, |run| run.max(written))
    }

    /// The verdict on something that a command runs.
    fn run(&self, tool: &str, run: &Run) -> Verdict {
        let is_covered = self.rules().any(|(verdict, rule)| {
            rule.has_words() && rule.covers(tool, verdict, Subject::Run(run)) == Covers::Yes
        });
        if self.allow.iter().any(|rule| rule.names(tool) && rule.is_alias(run)) {
            return Verdict::Allow;
        }
        let is_inner = matches!(run, Run::Command { is_inner: true, .. });
        // The command that runs it was judged as a whole.
        let verdict =
            if is_covered || is_inner { self.judge(tool, Subject::Run(run)) } else { Verdict::Allow };
        let restricting = self.rules().filter(|(verdict, _)| *verdict != Verdict::Allow);
        let mut perhaps = restricting.filter(|(verdict, rule)| {
            rule.has_words() && rule.covers(tool, *verdict, Subject::Run(run)) == Covers::Perhaps
        });
        if perhaps.next().is_some() { verdict.max(Verdict::Ask) } else { verdict }
    }

    /// The verdict of the shells' rules on a command that another tool carries: only those that ask or deny count, and those
    /// about every command only where no rule names the tool.
    fn carried(&self, tool: &str, command: &str) -> Verdict {
        let is_named = self.rules().any(|(_, rule)| rule.names(tool));
        let of_shells = |rules: &[Rule], with_whole: bool| -> Vec<Rule> {
            let kept = rules.iter().filter(|rule| rule.is_of_shells() && (with_whole || !rule.is_whole()));
            kept.cloned().collect()
        };
        let shells = Self {
            default: Verdict::Allow,
            allow: of_shells(&self.allow, false),
            ask: of_shells(&self.ask, !is_named),
            deny: of_shells(&self.deny, !is_named),
        };
        shells.command(names::SHELL, command)
    }

    /// The verdict of the most specific rule, among equals the strictest.
    fn judge(&self, tool: &str, subject: Subject<'_>) -> Verdict {
        let covering = self
            .rules()
            .map(|(verdict, rule)| (verdict, rule, rule.covers(tool, verdict, subject)))
            .filter_map(|(verdict, rule, covers)| match covers {
                Covers::Yes => Some((verdict, rule)),
                // Where it cannot be told whether a strict rule covers the path, a person can.
                Covers::Perhaps if verdict != Verdict::Allow && !rule.has_words() => {
                    Some((Verdict::Ask, rule))
                }
                Covers::Perhaps | Covers::No => None,
            });
        let decided = covering.map(|(verdict, rule)| (rule.length(), rule.named(), verdict)).max();
        match decided {
            Some((_, _, verdict)) => verdict,
            None if self.restricts() && !names::is_known(tool) => self.default.max(Verdict::Ask),
            None => self.default,
        }
    }

    /// Whether a rule asks or denies.
    fn restricts(&self) -> bool {
        !self.ask.is_empty() || !self.deny.is_empty()
    }

    fn rules(&self) -> impl Iterator<Item = (Verdict, &Rule)> {
        let lists = [(Verdict::Allow, &self.allow), (Verdict::Ask, &self.ask), (Verdict::Deny, &self.deny)];
        lists.into_iter().flat_map(|(verdict, rules)| rules.iter().map(move |rule| (verdict, rule)))
    }
}

impl From<Match> for Covers {
    fn from(found: Match) -> Self {
        match found {
            Match::No => Self::No,
            Match::Perhaps => Self::Perhaps,
            Match::Yes => Self::Yes,
        }
    }
}

impl Named {
    /// Whether it names a tool, by its own name or by that of one that is the same to rules.
    fn names(&self, tool: &str) -> bool {
        let is_named = |tool: &str| match self {
            Self::Beginning(beginning) => names::plain(tool).starts_with(names::plain(beginning)),
            Self::Tool(name) => names::plain(name) == names::plain(tool) || names::covers(name, tool),
        };
        is_named(tool) || matches!(self, Self::Beginning(beginning) if tool.starts_with(&**beginning))
    }
}
