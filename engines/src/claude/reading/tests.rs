use serde_json::{Value, json};

use super::*;
use crate::contract::Usage;

/// A reading of a turn that the line `U1`, the message `m1`, is about.
fn reading() -> Reading {
    let meter = Meter { before: Some(Totals::default()), rates: None, max_cost_nanos: None };
    let mut reading = Reading::new(Gate::default(), meter);
    reading.wrote("U1".to_owned(), command("m1"));
    reading.begin(Turn { lines: vec!["U1".to_owned()], ..Turn::default() });
    reading
}

fn command(message: &str) -> Command {
    Command { answers: vec![message.to_owned()], delivers: vec![message.to_owned()] }
}

fn state(line: &str, state: &str) -> Value {
    json!({"type": "command_lifecycle", "command_uuid": line, "state": state})
}

fn says(id: &str, text: &str) -> Value {
    json!({"type": "assistant", "uuid": format!("anchor of {id}"), "message": {"id": id, "content": [{"type": "text", "text": text}]}})
}

fn result(answers: &[&str], dollars: f64) -> Value {
    json!({
        "type": "result", "subtype": "success", "result": "", "num_turns": 1, "user_message_uuids": answers,
        "total_cost_usd": dollars, "modelUsage": {"m": {"inputTokens": 1}},
    })
}

/// What is told of these lines, in short.
fn told(reading: &mut Reading, lines: &[Value]) -> Vec<String> {
    for line in lines {
        reading.read(Line::read(line));
    }
    let shown = reading.events.drain(..).map(|event| match event {
        EngineEvent::Delivered(ids) => format!("delivered {}", ids.join(" ")),
        EngineEvent::MessageDone(message) => format!("message {}", message.content),
        EngineEvent::Autonomous(message) => {
            format!("by itself {} for {:?}", message.content, message.usage.cost_nanos)
        }
        EngineEvent::TurnDone(done) => {
            format!("answered {} for {:?}", done.answered.join(" "), done.usage.cost_nanos)
        }
        EngineEvent::Failed(error) => format!("failed: {error}"),
        EngineEvent::Delta(_) => "delta".to_owned(),
        EngineEvent::Used(usage) => format!("used {:?}", usage.cost_nanos),
        EngineEvent::Interrupted => "interrupted".to_owned(),
        other => format!("{other:?}"),
    });
    shown.collect()
}

#[test]
fn what_nobody_asked_for_answers_nothing_and_its_cost_is_nobody_elses() {
    let mut reading = reading();
    let lines = [
        says("0", "a task is done"),
        result(&[], 0.5),
        state("U1", "started"),
        says("1", "hi"),
        result(&["U1"], 0.75),
    ];
    let expected = [
        "by itself a task is done for Some(500000000)",
        "delivered m1",
        "delta",
        "message hi",
        "answered m1 for Some(250000000)",
    ];
    assert_eq!(told(&mut reading, &lines), expected);
}

#[test]
fn a_message_that_is_folded_into_a_turn_of_the_clis_own_makes_it_ours() {
    let mut reading = reading();
    let lines = [says("0", "by itself"), state("U1", "started"), says("1", "hi"), result(&["U1"], 0.5)];
    let told = told(&mut reading, &lines);
    assert_eq!(told[0], "delivered m1");
    assert!(told.contains(&"message hi".to_owned()), "{told:?}");
    assert_eq!(told.last().unwrap(), "answered m1 for Some(500000000)");
}

#[test]
fn only_the_messages_of_the_result_are_answered() {
    let mut reading = reading();
    reading.wrote("U2".to_owned(), command("m2"));
    let lines = [state("U1", "started"), says("1", "one"), result(&["U1"], 0.5)];
    assert_eq!(told(&mut reading, &lines).last().unwrap(), "answered m1 for Some(500000000)");
    assert!(reading.has_message("m2") && !reading.has_message("m1"));

    reading.begin(Turn { lines: vec!["U2".to_owned()], ..Turn::default() });
    let lines = [state("U2", "started"), says("2", "two"), result(&["U2"], 0.5)];
    let told = told(&mut reading, &lines);
    assert_eq!(
        (&*told[0], told.last().unwrap().split(" for").next().unwrap()),
        ("delivered m2", "answered m2")
    );
}

#[test]
fn an_interrupt_that_came_too_early_is_repeated_and_what_comes_late_is_no_answer() {
    let mut reading = reading();
    reading.stop(Ending::Interrupted);
    reading.replies.clear();
    assert!(told(&mut reading, &[state("U1", "started")]).is_empty(), "more may be given with it");
    assert_eq!(reading.replies.len(), 1);
    let late = [says("1", "all of it"), result(&["U1"], 0.5)];
    assert_eq!(
        told(&mut reading, &late),
        ["delivered m1", "delta", "message all of it", "used Some(500000000)", "interrupted"]
    );
}

#[test]
fn messages_that_the_model_is_given_together_are_told_together() {
    let mut reading = reading();
    reading.wrote("U2".to_owned(), command("m2"));
    reading.wrote("U3".to_owned(), command("m3"));
    let together =
        [state("U1", "started"), json!({"type": "user", "isReplay": true}), state("U2", "started")];
    assert!(told(&mut reading, &together).is_empty());
    let later = [says("1", "hi"), state("U3", "started"), says("2", "ho")];
    assert_eq!(told(&mut reading, &later)[..2], ["delivered m1 m2", "delivered m3"]);
    // Where nothing follows, silence tells as well.
    reading.wrote("U4".to_owned(), command("m4"));
    reading.read(Line::read(&state("U4", "started")));
    assert!(reading.has_deliveries());
    reading.tell_deliveries();
    assert_eq!(told(&mut reading, &[]), ["delivered m4"]);
}

#[test]
fn a_message_that_was_never_begun_is_cancelled_without_a_result() {
    let mut reading = reading();
    reading.stop(Ending::Interrupted);
    assert_eq!(told(&mut reading, &[state("U1", "queued"), state("U1", "cancelled")]), ["interrupted"]);
    assert!(!reading.has_message("m1") && !reading.is_running());
}

#[test]
fn messages_are_joined_from_their_blocks_with_the_usage_of_their_stream() {
    let mut reading = reading();
    let stream = |event: Value| json!({"type": "stream_event", "event": event});
    let lines = [
        state("U1", "started"),
        stream(
            json!({"type": "message_start", "message": {"id": "1", "model": "m", "usage": {"input_tokens": 3, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 5, "output_tokens": 1}}}),
        ),
        json!({"type": "assistant", "uuid": "a", "message": {"id": "1", "content": [{"type": "thinking", "thinking": "hm"}]}}),
        says("1", "one"),
        json!({"type": "assistant", "uuid": "b", "message": {"id": "1", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}}),
        // A tool that is refused at once has its result before the message is complete.
        json!({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": "no"}]}}),
        stream(json!({"type": "message_delta", "usage": {"output_tokens": 9}})),
        stream(json!({"type": "message_stop"})),
    ];
    for line in &lines {
        reading.read(Line::read(line));
    }
    let events: Vec<_> = reading.events.drain(..).collect();
    let [
        EngineEvent::Delivered(_),
        EngineEvent::MessageDone(message),
        EngineEvent::ToolDone { id, success, .. },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (&*message.content, message.thinking.as_deref(), message.anchor.as_deref()),
        ("one", Some("hm"), Some("b"))
    );
    let used = Usage { input_tokens: 7, output_tokens: 9, cache_tokens: 5, ..Usage::default() };
    assert_eq!(message.usage, used);
    assert_eq!((&**id, *success), ("t", false));
}

#[test]
fn a_turn_without_an_answer_of_the_model_is_answered_by_its_result() {
    let mut reading = reading();
    let mut last = result(&["U1"], 0.0);
    last["result"] = json!("it costs nothing");
    let told = told(&mut reading, &[state("U1", "started"), last]);
    assert_eq!(told[1], "message it costs nothing");
}

#[test]
fn a_question_that_a_turn_leaves_open_is_asked_again_in_the_next() {
    let mut reading = reading();
    let ask = json!({"type": "control_request", "request_id": "q", "request": {
        "subtype": "can_use_tool", "tool_name": "AskUserQuestion", "tool_use_id": "t", "agent_id": "a", "input": {"questions": []},
    }});
    let asked = |reading: &mut Reading| {
        assert!(reading.decide());
        matches!(reading.events.pop_front(), Some(EngineEvent::Asked { id, .. }) if id == "q")
    };
    told(&mut reading, &[state("U1", "started"), ask]);
    assert!(asked(&mut reading) && reading.is_asking());
    let told = told(&mut reading, &[says("1", "hi"), result(&["U1"], 0.5)]);
    assert!(told.iter().any(|event| event.contains("Withdrawn")), "{told:?}");
    assert!(!reading.is_asking());

    reading.begin(Turn { lines: vec!["U2".to_owned()], ..Turn::default() });
    assert!(asked(&mut reading));
}

#[test]
fn what_a_turn_has_brought_before_counts_in_its_end() {
    let mut reading = reading();
    let usage = Usage { input_tokens: 10, ..Usage::default() };
    reading.begin(Turn { lines: vec!["U1".to_owned()], iterations: 2, usage, ..Turn::default() });
    for line in [state("U1", "started"), says("1", "hi"), result(&["U1"], 0.5)] {
        reading.read(Line::read(&line));
    }
    let Some(EngineEvent::TurnDone(done)) = reading.events.pop_back() else { panic!("{reading:?}") };
    assert_eq!((done.iterations, done.usage.input_tokens, done.usage.cost_nanos), (3, 11, Some(500_000_000)));
}

#[test]
fn thoughts_are_told_as_such() {
    let mut reading = reading();
    let stream = |event: Value| json!({"type": "stream_event", "event": event});
    let delta = json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}});
    let start = json!({"type": "message_start", "message": {"id": "1"}});
    let told = told(&mut reading, &[state("U1", "started"), stream(start), stream(delta)]);
    assert_eq!(told[1], "ThinkingDelta(\"hm\")");
}

#[test]
fn a_message_that_the_cli_has_had_before_is_not_waited_for() {
    let mut reading = reading();
    let told = told(&mut reading, &[state("U1", "completed")]);
    assert!(told[0].contains("the conversation has it already"), "{told:?}");
}
