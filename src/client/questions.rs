//! What the agent asks a person, and what of it is open.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::answers::{Question, verdict};
use super::tools::telling;
use super::{member, text};
use crate::terminal::harmless;

/// The questions that are kept; a turn asks one after another.
const OPEN: usize = 64;
/// How much of a plan or of a call is shown, in characters.
const SHOWN: usize = 8_000;

/// The open questions of a turn, the oldest first. That one is shown.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: VecDeque<Asked>,
    /// Answers to the first questions of the oldest, where it has several.
    given: Map<String, Value>,
}

/// One interaction.
#[derive(Debug)]
struct Asked {
    id: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Permission { tool: String, input: Value },
    Questions(Vec<Question>),
    Plan(String),
}

/// What a line means.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// It answers the interaction: this is what the server is told.
    Answer { id: String, body: Value },
    /// It answers one of several questions; the next one is to be shown.
    Next,
    /// It answers nothing, and this is why.
    Unclear(String),
}

impl Questions {
    /// The oldest question's id.
    pub(super) fn first(&self) -> Option<&str> {
        self.open.front().map(|asked| asked.id.as_str())
    }

    pub(super) fn is_open(&self, id: &str) -> bool {
        self.open.iter().any(|asked| asked.id == id)
    }

    /// A question was asked; it may come again.
    pub(super) fn ask(&mut self, interaction: &Value) {
        if let Some(asked) = Asked::read(interaction)
            && self.open.len() < OPEN
            && !self.is_open(&asked.id)
        {
            self.open.push_back(asked);
        }
    }

    /// A question is open no more.
    pub(super) fn close(&mut self, id: &str) {
        if self.first() == Some(id) {
            self.given.clear();
        }
        self.open.retain(|asked| asked.id != id);
    }

    /// The oldest is asked from its beginning.
    pub(super) fn begin_again(&mut self) {
        self.given.clear();
    }

    /// Only these are open.
    pub(super) fn keep(&mut self, open: &[&Value]) {
        let is_open = |id: &str| open.iter().any(|interaction| member(interaction, "id") == id);
        let closed: Vec<_> =
            self.open.iter().map(|asked| asked.id.clone()).filter(|id| !is_open(id)).collect();
        for id in closed {
            self.close(&id);
        }
    }

    /// What is asked, in a line.
    pub(super) fn summary(&self) -> String {
        match self.open.front().map(|asked| &asked.kind) {
            Some(Kind::Permission { tool, input }) => {
                format!("whether it may use {}: {}", harmless(tool), telling(input))
            }
            Some(Kind::Questions(questions)) => {
                let texts = questions.iter().map(|question| telling(&Value::from(question.text.as_str())));
                texts.collect::<Vec<_>>().join(" / ")
            }
            Some(Kind::Plan(_)) => "whether it may carry out its plan".to_owned(),
            None => String::new(),
        }
    }

    /// What is asked, and how to answer; `None`: nothing is.
    pub(super) fn shown(&self) -> Option<(String, &'static str)> {
        let (text, prompt) = match &self.open.front()?.kind {
            Kind::Permission { tool, input } => {
                let text = format!("The agent wants to use {tool}:\n{}", members(input));
                (text, "Allow? y, or n and why: ")
            }
            Kind::Questions(questions) => {
                let at = self.given.len();
                let of = match questions.len() {
                    1 => String::new(),
                    all => format!(" ({} of {all})", at + 1),
                };
                let question = questions.get(at)?;
                (format!("The agent asks{of}: {}", question.shown()), question.prompt())
            }
            Kind::Plan(plan) => {
                (format!("The agent's plan:\n{plan}"), "Carry it out? y, or n and what to change: ")
            }
        };
        Some((harmless(&cut(&text)), prompt))
    }

    /// What a line means to the question that is shown.
    pub(super) fn read(&mut self, line: &str) -> Meaning {
        let Some(asked) = self.open.front() else { return Meaning::Next };
        let body = match &asked.kind {
            Kind::Permission { .. } | Kind::Plan(_) => match verdict(line) {
                Ok(body) => body,
                Err(why) => return Meaning::Unclear(why),
            },
            Kind::Questions(questions) => {
                let Some(question) = questions.get(self.given.len()) else { return Meaning::Next };
                match question.answer(line) {
                    Ok(answer) => self.given.insert(question.text.clone(), answer),
                    Err(why) => return Meaning::Unclear(why),
                };
                if self.given.len() < questions.len() {
                    return Meaning::Next;
                }
                json!({"decision": "allow", "answers": self.given})
            }
        };
        Meaning::Answer { id: asked.id.clone(), body }
    }
}

impl Asked {
    fn read(interaction: &Value) -> Option<Self> {
        let payload = interaction.get("payload").unwrap_or(&Value::Null);
        let kind = match member(interaction, "kind") {
            "permission" => Kind::Permission {
                tool: member(payload, "tool").to_owned(),
                input: payload.get("input").cloned().unwrap_or_default(),
            },
            "plan" => Kind::Plan(member(payload, "plan").to_owned()),
            "question" => {
                let questions = payload.get("questions").and_then(Value::as_array).into_iter().flatten();
                let mut all: Vec<Question> = Vec::new();
                // Answers go by the text, so a text that comes twice is one question.
                for question in questions.filter_map(Question::read) {
                    if all.iter().all(|other| other.text != question.text) {
                        all.push(question);
                    }
                }
                Kind::Questions(Some(all).filter(|all| !all.is_empty())?)
            }
            _ => return None,
        };
        Some(Self { id: text(interaction, "id")?, kind })
    }
}

/// The arguments of a call, a line each.
fn members(input: &Value) -> String {
    // Its further lines do not look like members of their own.
    let plain =
        |value: &Value| value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', "\n    "));
    match input {
        Value::Object(members) => {
            let lines = members.iter().map(|(name, value)| format!("  {name}: {}", plain(value)));
            lines.collect::<Vec<_>>().join("\n")
        }
        other => format!("  {}", plain(other)),
    }
}

/// The part of a text that is shown, and that it is a part.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…\n({} characters more)", &text[..end], text[end..].chars().count()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interaction(id: &str, kind: &str, payload: &Value) -> Value {
        json!({"id": id, "kind": kind, "payload": payload})
    }

    fn two_questions() -> Questions {
        let payload = json!({"questions": [{"question": "Where?"}, {"question": "When?", "options": ["now", "later"]}]});
        let mut questions = Questions::default();
        questions.ask(&interaction("a", "question", &payload));
        questions
    }

    #[test]
    fn several_questions_are_answered_one_after_the_other_and_sent_together() {
        let mut questions = two_questions();
        assert_eq!(questions.shown().unwrap().0, "The agent asks (1 of 2): Where?");
        assert_eq!(questions.read("here"), Meaning::Next);
        assert_eq!(questions.shown().unwrap().0, "The agent asks (2 of 2): When?\n  1. now\n  2. later");
        assert!(matches!(questions.read("3"), Meaning::Unclear(_)));
        let body = json!({"decision": "allow", "answers": {"Where?": "here", "When?": "later"}});
        assert_eq!(questions.read("2"), Meaning::Answer { id: "a".to_owned(), body });
    }

    #[test]
    fn a_question_is_open_once_until_it_is_closed() {
        let mut questions = two_questions();
        let call = interaction(
            "b",
            "permission",
            &json!({"tool": "shell", "input": {"command": "ls\ncommand: rm"}}),
        );
        for _ in 0..2 {
            questions.ask(&call);
        }
        questions.ask(&interaction("c", "unheard of", &Value::Null));
        assert_eq!(questions.read("here"), Meaning::Next);

        questions.keep(&[&call]);

        assert_eq!(questions.first(), Some("b"), "the answer to half of the other is forgotten with it");
        assert_eq!(
            questions.shown().unwrap().0,
            "The agent wants to use shell:\n  command: ls\n    command: rm"
        );
        assert_eq!(questions.summary(), "whether it may use shell: ls command: rm");
        questions.close("b");
        assert!(questions.shown().is_none() && questions.first().is_none());
    }

    #[test]
    fn of_what_is_too_long_the_rest_is_counted() {
        let mut questions = Questions::default();
        questions.ask(&interaction("a", "plan", &json!({"plan": "x".repeat(2 * SHOWN)})));
        let (shown, prompt) = questions.shown().unwrap();
        assert!(shown.ends_with("characters more)") && shown.len() < SHOWN + 100, "{}", shown.len());
        assert!(prompt.contains("what to change"), "{prompt}");
    }
}
