//! A long session of the real CLI, over four processes, with all that a transcript can have in it.

use std::fs;

use roundhouse_engines::contract::Native;
use roundhouse_oracle::{Oracle, RecordedRequest};
use serde_json::json;

use crate::cli::{Cli, TOO_LONG, Turn};
use crate::model::{Model, call, shell, text, thinking};
use crate::place::Place;

pub(crate) struct Recorded {
    pub(crate) native: Native,
    pub(crate) oracle: Oracle,
    /// Answers by which it can be cut, with what X is at each.
    pub(crate) answers: Vec<(String, &'static str)>,
    /// The message of the model with the large result of a tool before it.
    pub(crate) large: String,
    /// Messages that were sent: folded into a running turn, and two that waited together.
    pub(crate) folded: String,
    pub(crate) merged: [String; 2],
    /// A message whose turn was interrupted.
    pub(crate) interrupted: String,
    /// A message that was answered with two calls at once, and its answer's anchor.
    pub(crate) both: (String, String),
}

/// More than the CLI keeps in the transcript itself.
pub(crate) fn long_words() -> String {
    "word ".repeat(9000).trim_end().to_owned()
}

pub(crate) async fn record(place: &Place) -> Recorded {
    let (native, oracle) = (place.session(), Oracle::start().await.unwrap());
    skill(place);
    let mut answers = Vec::new();

    let mut cli = Cli::open(place, &native, &oracle.base_url());
    answers.push((cli.turn("X = 5").await.anchor, "X = 5"));
    answers.push((cli.turn("sleep 0 then say hi").await.anchor, "X = 5"));
    let large = cli.turn(&format!("sleep 0 then say {}", long_words())).await.anchor;
    cli.close().await;

    let shapes = shapes(place, &native).await;
    answers.push((shapes.answer, "X = 6"));

    let mut cli = Cli::open(place, &native, &oracle.base_url());
    let (merged, turn) = merge(&mut cli, &oracle).await;
    answers.push((turn.anchor, "X = 9"));
    cli.say("slow 3600\ncount to 1000").await;
    oracle.wait_for(RecordedRequest::in_flight, TOO_LONG).await.unwrap();
    cli.interrupt().await;
    answers.push((cli.turn("what is X").await.anchor, "X = 9"));
    cli.turn("/helper now").await;
    cli.turn("fail 400 once").await;
    answers.push((cli.turn("what is X").await.anchor, "X = 9"));
    cli.close().await;

    let mut cli = Cli::open(place, &native, &oracle.base_url());
    cli.turn("/compact").await;
    answers.push((cli.turn("X = 20").await.anchor, "X = 20"));
    answers.push((cli.turn("add 1 to x").await.anchor, "X = 21"));
    cli.close().await;
    let Shapes { both, folded, interrupted, .. } = shapes;
    Recorded { native, oracle, answers, large, folded, merged, interrupted, both }
}

struct Shapes {
    both: (String, String),
    folded: String,
    /// The anchor of the answer to it.
    answer: String,
    interrupted: String,
}

/// Several calls at once, reasoning, a sub-agent, a message that comes while a tool runs, and a tool that is stopped.
async fn shapes(place: &Place, native: &Native) -> Shapes {
    let agent = json!({"description": "a test", "prompt": "say found", "subagent_type": "general-purpose"});
    let wait = "while [ ! -e go ]; do sleep 0.05; done; echo gone";
    let model = Model::start([
        vec![text("Both."), shell("toolu_a", "sleep 0.2; echo a"), shell("toolu_b", "echo b")],
        vec![thinking("Hm."), text("a and b")],
        vec![call("toolu_agent", "Agent", &agent)],
        vec![text("found")],
        vec![text("The agent has found it.")],
        vec![shell("toolu_wait", wait)],
        vec![text("X = 6")],
        vec![shell("toolu_never", "while [ ! -e never ]; do sleep 0.05; done")],
    ])
    .await;
    let mut cli = Cli::open(place, native, &model.url);
    let both = cli.turn("say both").await;
    cli.turn("say that an agent has found it").await;
    let waits = cli.say("say gone").await;
    cli.called().await;
    let folded = cli.say("add 1 to x").await;
    cli.queued(&folded).await;
    fs::write(place.cwd.join("go"), "").unwrap();
    let turn = cli.end(waits).await;
    assert_eq!(turn.answer, "X = 6");
    let interrupted = cli.say("say never").await;
    cli.called().await;
    cli.interrupt().await;
    cli.close().await;
    Shapes { both: (both.id, both.anchor), folded, answer: turn.anchor, interrupted }
}

/// Two messages that wait for the end of a turn.
async fn merge(cli: &mut Cli, oracle: &Oracle) -> ([String; 2], Turn) {
    let slow = cli.say("slow 3600\ncount to 3").await;
    cli.started(&slow).await;
    let first = cli.say("add 1 to x").await;
    cli.queued(&first).await;
    let second = cli.say("add 2 to x").await;
    cli.queued(&second).await;
    oracle.wait_for(RecordedRequest::in_flight, TOO_LONG).await.unwrap();
    oracle.hurry();
    cli.result().await;
    let turn = cli.end(second.clone()).await;
    assert_eq!(turn.answer, "X = 7\nX = 9");
    ([first, second], turn)
}

/// A skill that is carried out by a sub-agent.
fn skill(place: &Place) {
    let folder = place.cwd.join(".claude/skills/helper");
    fs::create_dir_all(&folder).unwrap();
    let skill = "---\nname: helper\ndescription: helps\ncontext: fork\n---\nsay helped $ARGUMENTS\n";
    fs::write(folder.join("SKILL.md"), skill).unwrap();
}

/// A session in which X is 5 and then 6, with the anchors of both.
pub(crate) async fn short(place: &Place, oracle: &Oracle) -> (Native, [String; 2]) {
    let native = place.session();
    let mut cli = Cli::open(place, &native, &oracle.base_url());
    let five = cli.turn("X = 5").await.anchor;
    let six = cli.turn("add 1 to x").await.anchor;
    cli.close().await;
    (native, [five, six])
}
