//! A turn's dealings with whoever sits at the terminal: the agent's questions, and the answers that are typed.

use serde_json::Value;

use super::questions::{Meaning, Questions};
use super::turn::Turn;
use super::{member, text};
use crate::terminal::harmless;

impl Turn<'_> {
    /// The agent asks something.
    pub(super) fn asked(&mut self, event: &Value) {
        if let Some(interaction) = event.get("interaction") {
            self.change(|questions| questions.ask(interaction));
        }
    }

    /// A question is open no more.
    pub(super) fn resolved(&mut self, event: &Value) {
        let id = member(event, "interactionId");
        // What was answered here is closed already.
        if self.questions.is_open(id) && !self.is_cancelling {
            let what = match (member(event, "state"), text(event, "decision")) {
                ("answered", Some(decision)) => {
                    format!("somebody else has answered: {}", harmless(&decision))
                }
                ("expired", _) => "nobody has answered in time: the agent is told so".to_owned(),
                _ => "the agent does not want to know any more".to_owned(),
            };
            self.screen.leave_prompt();
            self.screen.remark(&what);
        }
        self.change(|questions| questions.close(id));
    }

    /// Takes over which questions are open, where events were missed.
    pub(super) fn take_up(&mut self, snapshot: &Value) {
        let open = snapshot.get("interactions").and_then(Value::as_array).into_iter().flatten();
        let turn = self.answering.clone();
        let of_turn = |interaction: &&Value| turn.is_some() && text(interaction, "turnId") == turn;
        let open: Vec<_> = open.filter(of_turn).collect();
        self.change(|questions| {
            questions.keep(&open);
            for interaction in open {
                questions.ask(interaction);
            }
        });
    }

    /// Changes what is open, and shows the oldest question where that is another one then.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Questions)) {
        let shown = self.questions.first().map(str::to_owned);
        change(&mut self.questions);
        if self.questions.first() != shown.as_deref() {
            self.show_question();
        }
    }

    /// Shows the oldest question and begins to take lines for answers; where nobody can answer here, tells where.
    fn show_question(&mut self) {
        self.screen.leave_prompt();
        self.takes_answers = false;
        let Some((question, prompt)) = self.questions.shown() else { return };
        self.takes_answers = self.lines.expect_answer();
        if self.takes_answers {
            self.screen.remark(&question);
            self.screen.prompt(prompt);
        } else {
            self.tell_where();
        }
    }

    fn tell_where(&mut self) {
        let (Some(session), Some(id)) = (self.session.as_deref(), self.questions.first()) else { return };
        let url = harmless(&self.server.interaction_url(session, id));
        let what = self.questions.summary();
        self.screen.remark(&format!("the agent asks {what}\nit waits for an answer at POST {url}"));
    }

    /// A line was typed while a question was shown; `None`: there will be no more.
    pub(super) async fn typed(&mut self, line: Option<String>) {
        let Some(line) = line else {
            self.screen.leave_prompt();
            self.takes_answers = false;
            self.tell_where();
            return;
        };
        self.screen.line_ended();
        match self.questions.read(&line) {
            Meaning::Answer { id, body } => self.send_answer(&id, &body).await,
            Meaning::Next => self.show_question(),
            Meaning::Unclear(why) => {
                self.screen.remark(&why);
                if let Some((_, prompt)) = self.questions.shown() {
                    self.screen.prompt(prompt);
                }
            }
        }
    }

    async fn send_answer(&mut self, id: &str, body: &Value) {
        let Some(session) = self.session.clone() else { return };
        match self.server.answer(&session, id, body).await {
            Ok(()) => {}
            Err(error) if error.is_settled() => self.screen.remark("the question was settled before that"),
            Err(error) => {
                self.screen.remark(&format!("cannot answer: {}", harmless(&error.to_string())));
                self.questions.begin_again();
                self.show_question();
                return;
            }
        }
        self.change(|questions| questions.close(id));
    }
}
