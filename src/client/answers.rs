//! How a typed line answers a question.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{member, text};

/// One question with the answers to choose from, if there are such.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) text: String,
    options: Vec<Choice>,
    is_multiple: bool,
}

#[derive(Debug)]
struct Choice {
    label: String,
    description: String,
}

impl Question {
    pub(super) fn read(question: &Value) -> Option<Self> {
        let options = question.get("options").and_then(Value::as_array).into_iter().flatten();
        let choice = |option: &Value| {
            let label =
                option.as_str().map_or_else(|| text(option, "label"), |label| Some(label.to_owned()))?;
            Some(Choice { label, description: member(option, "description").to_owned() })
        };
        Some(Self {
            text: text(question, "question")?,
            options: options.filter_map(choice).collect(),
            is_multiple: question.get("multiSelect").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// The question as it is shown, with its options numbered.
    pub(super) fn shown(&self) -> String {
        let mut text = self.text.clone();
        for (at, Choice { label, description }) in self.options.iter().enumerate() {
            let means = if description.is_empty() { "" } else { ": " };
            // Writing to a string cannot fail.
            let _ = write!(text, "\n  {}. {label}{means}{description}", at + 1);
        }
        text
    }

    /// How to answer it.
    pub(super) const fn prompt(&self) -> &'static str {
        match (self.options.is_empty(), self.is_multiple) {
            (true, _) => "Your answer: ",
            (false, false) => "A number, or your own words: ",
            (false, true) => "Numbers, or your own words: ",
        }
    }

    /// The answer that a line is: options by their numbers, anything else as it is.
    ///
    /// # Errors
    /// Why it is none, for whoever typed it.
    pub(super) fn answer(&self, line: &str) -> Result<Value, String> {
        let line = line.trim();
        if line.is_empty() {
            return Err("an answer, please; Ctrl-C cancels the turn".to_owned());
        }
        let words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let numbers: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
        let is_choice = |numbers: &Vec<usize>| !(numbers.is_empty() || self.options.is_empty());
        let Some(numbers) = numbers.filter(is_choice) else { return Ok(line.into()) };
        let mut labels = Vec::new();
        for number in numbers {
            let choice = number.checked_sub(1).and_then(|at| self.options.get(at));
            let Some(choice) = choice else {
                return Err(format!("there is no {number}; there are 1 to {}", self.options.len()));
            };
            if !labels.contains(&choice.label) {
                labels.push(choice.label.clone());
            }
        }
        match (self.is_multiple, labels.as_slice()) {
            (true, _) => Ok(labels.into()),
            (false, [label]) => Ok(label.as_str().into()),
            (false, _) => Err("only one of them, please".to_owned()),
        }
    }
}

/// Yes, or no and why: the answer as the server takes it.
///
/// # Errors
/// Why it is neither, for whoever typed it.
pub(super) fn verdict(line: &str) -> Result<Value, String> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (word, rest) = (word.trim_end_matches([',', ':', '.']).to_lowercase(), rest.trim());
    match (word.as_str(), rest) {
        ("y" | "yes", "") => Ok(json!({"decision": "allow"})),
        ("n" | "no", "") => Ok(json!({"decision": "deny"})),
        ("n" | "no", why) => Ok(json!({"decision": "deny", "message": why})),
        _ => Err("y or n, please, and why after n; Ctrl-C cancels the turn".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(several: bool) -> Question {
        let options = json!([{"label": "red", "description": "warm"}, {"label": "blue"}, "green"]);
        let asked = json!({"question": "Which?", "options": options, "multiSelect": several});
        Question::read(&asked).unwrap()
    }

    #[test]
    fn a_call_is_allowed_or_denied_by_its_first_word() {
        let cases = [
            ("y", json!({"decision": "allow"})),
            (" Yes ", json!({"decision": "allow"})),
            ("n", json!({"decision": "deny"})),
            ("No, not on a Monday", json!({"decision": "deny", "message": "not on a Monday"})),
            ("n  use `ls`", json!({"decision": "deny", "message": "use `ls`"})),
        ];
        for (line, body) in cases {
            assert_eq!(verdict(line), Ok(body), "{line:?}");
        }
        for line in ["", " ", "yes but carefully", "never", "1", "ny"] {
            assert!(verdict(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn options_are_shown_with_the_numbers_that_choose_them() {
        assert_eq!(question(false).shown(), "Which?\n  1. red: warm\n  2. blue\n  3. green");
        for (line, answer) in
            [("2", "blue"), (" 3 ", "green"), ("2 2", "blue"), ("2 days", "2 days"), ("-1", "-1")]
        {
            assert_eq!(question(false).answer(line), Ok(json!(answer)), "{line:?}");
        }
        for line in ["", "0", "4", "1 2"] {
            assert!(question(false).answer(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn of_several_options_each_is_chosen_once() {
        for (line, answer) in [
            ("1,3", json!(["red", "green"])),
            ("3 1, 3", json!(["green", "red"])),
            ("2", json!(["blue"])),
            ("none of them", json!("none of them")),
            (",", json!(",")),
        ] {
            assert_eq!(question(true).answer(line), Ok(answer), "{line:?}");
        }
        assert_eq!(question(true).answer("1 9"), Err("there is no 9; there are 1 to 3".to_owned()));
    }

    #[test]
    fn without_options_a_number_is_an_answer() {
        let question = Question::read(&json!({"question": "How many?"})).unwrap();
        assert_eq!(question.answer("7"), Ok(json!("7")));
        assert_eq!(question.prompt(), "Your answer: ");
    }
}
