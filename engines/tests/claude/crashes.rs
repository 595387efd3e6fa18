//! The CLI is killed in mid-turn, or its host; the turn goes on.

use std::time::Duration;

use roundhouse_engines::contract::{
    Attachment, Earlier, EngineError, EngineEvent, Injected, InputMessage, TurnInput,
};
use roundhouse_engines::process::kill_leftovers;
use roundhouse_oracle::RecordedRequest;

use crate::host::{
    self, Host, PIXEL, TOO_LONG, answer, done, forever, is_asleep, is_running, message, until_none_asleep,
};

fn anchors_and_results(events: &[EngineEvent]) -> (Vec<String>, Vec<String>) {
    let anchors = events.iter().filter_map(|event| match event {
        EngineEvent::MessageDone(message) => message.anchor.clone(),
        _ => None,
    });
    let results = events.iter().filter_map(|event| match event {
        EngineEvent::ToolDone { id, .. } => Some(id.clone()),
        _ => None,
    });
    (anchors.collect(), results.collect())
}

/// A tool of the first turn runs, and everything is killed with -9. What was told until then.
async fn killed_in_a_tool(host: &Host) -> (InputMessage, String, Vec<EngineEvent>) {
    let spec = host.spec(None);
    let owner = spec.session.clone();
    let mut session = host.open_spec(spec).await;
    let message = session.send(&format!("X = 5\nsleep {} then say slept", forever())).await;
    let events = session.until_asleep().await;
    let native = session.native();
    host.has_kept_a_call(&native).await;
    assert!(kill_leftovers(&owner) > 1);
    let last = session.rest().await;
    assert!(matches!(last.last(), Some(EngineEvent::Failed(EngineError::Died { .. }))), "{last:?}");
    assert!(!session.0.is_warm());
    session.close().await;
    until_none_asleep().await;
    (message, native, events)
}

#[tokio::test]
async fn a_turn_that_was_cut_off_in_a_tool_goes_on_with_a_note_and_is_not_sent_again() {
    let host = Host::new().await;
    let (message, native, events) = killed_in_a_tool(&host).await;
    let (anchors, results) = anchors_and_results(&events);

    let mut session = host.resume(&native).await;
    let late = host::message("what is X");
    let ids = vec![message.id.clone(), late.id.clone()];
    let earlier = Earlier { anchors, results, ..Earlier::default() };
    let input =
        TurnInput { messages: vec![message.clone(), late], earlier: Some(earlier), ..TurnInput::default() };
    session.0.send(input).await.unwrap();
    let events = session.rest().await;

    assert!(answer(&events).contains("X = 5"), "{events:?}");
    assert_eq!(done(&events).answered, ids);
    let delivered: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            EngineEvent::Delivered(ids) => Some(ids.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(delivered, ids, "each once");
    let sent = host.requests().last().unwrap().json()["messages"].to_string();
    assert_eq!(sent.matches("then say slept").count(), 1, "{sent}");
    assert!(sent.contains("this turn was cut off") && sent.contains("what is X"), "{sent}");
    assert!(!is_asleep(), "nothing ran again");
}

#[tokio::test]
async fn an_answer_that_nobody_has_heard_is_told_without_asking_the_model_again() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let message = session.send("X = 5\nsleep 0 then say slept").await;
    let events = session.rest().await;
    let said = answer(&events);
    let (anchors, results) = anchors_and_results(&events);
    let native = session.native();
    session.close().await;
    let asked = host.requests().len();

    for (known, expected) in [(0, "MessageDone ToolDone MessageDone"), (1, "ToolDone MessageDone"), (2, "")] {
        let results = if known == 2 { results.clone() } else { vec![] };
        let earlier = Earlier { anchors: anchors[..known].to_vec(), results, ..Earlier::default() };
        let mut session = host.resume(&native).await;
        let input =
            TurnInput { messages: vec![message.clone()], earlier: Some(earlier), ..TurnInput::default() };
        session.0.send(input).await.unwrap();
        let events = session.rest().await;
        let kinds: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                EngineEvent::MessageDone(_) => Some("MessageDone"),
                EngineEvent::ToolDone { .. } => Some("ToolDone"),
                _ => None,
            })
            .collect();
        assert_eq!(kinds.join(" "), expected, "{events:?}");
        if known < 2 {
            assert_eq!(answer(&events), said);
        }
        assert_eq!(done(&events).answered, [&*message.id]);
        assert!(session.0.is_warm());
        session.close().await;
    }
    assert_eq!(host.requests().len(), asked);
}

#[tokio::test]
async fn a_turn_that_its_host_has_given_back_goes_on_elsewhere() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let message = session.send(&format!("X = 5\nsleep {} then say never", forever())).await;
    session.until_asleep().await;
    let native = session.native();
    host.has_kept_a_call(&native).await;
    session.close().await;
    until_none_asleep().await;

    let mut session = host.resume(&native).await;
    let input = TurnInput {
        messages: vec![message.clone()],
        earlier: Some(Earlier::default()),
        ..TurnInput::default()
    };
    session.0.send(input).await.unwrap();
    let events = session.rest().await;
    assert_eq!(done(&events).answered, [&*message.id]);
    let sent = host.requests().last().unwrap().json()["messages"].to_string();
    assert_eq!(sent.matches("then say never").count(), 1, "{sent}");
    assert!(sent.contains("this turn was cut off"), "{sent}");
}

#[tokio::test]
async fn a_message_that_never_arrived_is_sent() {
    let host = Host::new().await;
    let mut session = host.open().await;
    session.chat("X = 5").await;
    let native = session.native();
    session.close().await;
    let mut session = host.resume(&native).await;
    let messages = vec![message("add 1 to x"), message("add 1 to x\nwhat is X")];
    let input = TurnInput { messages, earlier: Some(Earlier::default()), ..TurnInput::default() };
    session.0.send(input).await.unwrap();
    assert_eq!(answer(&session.rest().await), "X = 6\nX = 7\nX = 7");
}

#[tokio::test]
async fn a_message_that_the_conversation_has_already_is_not_sent_again_even_if_nothing_is_known_of_an_earlier_turn()
 {
    let host = Host::new().await;
    let mut session = host.open().await;
    let message = session.send("X = 5").await;
    session.rest().await;
    let native = session.native();
    session.close().await;
    let mut session = host.resume(&native).await;
    session.0.send(TurnInput { messages: vec![message], ..TurnInput::default() }).await.unwrap();
    assert_eq!(answer(&session.rest().await), "X = 5");
    assert_eq!(host.requests().len(), 1);
    assert_eq!(session.chat("what is X").await, "X = 5");
}

#[tokio::test]
async fn messages_that_were_sent_as_one_are_found_as_one() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let file = |name: &str, media_type: &str, data: &[u8]| Attachment {
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        data: data.to_vec().into(),
    };
    let mut messages = vec![message("X = 5"), message("add 1 to x"), message("")];
    messages[0].attachments = vec![file("a.png", "image/png", &PIXEL)];
    messages[2].attachments =
        vec![file("n.txt", "text/plain", b"what is X"), file("a.png", "image/png", &PIXEL)];
    session.0.send(TurnInput { messages: messages.clone(), ..TurnInput::default() }).await.unwrap();
    let events = session.rest().await;
    let (said, native, asked) = (answer(&events), session.native(), host.requests().len());
    session.close().await;
    let mut session = host.resume(&native).await;
    let input = TurnInput { messages, earlier: Some(Earlier::default()), ..TurnInput::default() };
    session.0.send(input).await.unwrap();
    assert_eq!(answer(&session.rest().await), said);
    assert_eq!(host.requests().len(), asked);
}

#[tokio::test]
async fn a_message_that_never_arrived_is_sent_although_one_before_it_says_the_same() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let first = session.send(&format!("X = 5\nsleep {} then say what is X", forever())).await;
    session.until_asleep().await;
    let native = session.native();
    host.has_kept_a_call(&native).await;
    session.close().await;

    let mut session = host.resume(&native).await;
    let messages = vec![first, message("what is X")];
    let input = TurnInput { messages, earlier: Some(Earlier::default()), ..TurnInput::default() };
    session.0.send(input).await.unwrap();
    assert!(answer(&session.rest().await).ends_with("X = 5"));
    let heard = host.last_heard();
    assert!(heard.contains("this turn was cut off") && heard.contains(r#"\n\nwhat is X""#), "{heard}");
}

#[tokio::test]
async fn messages_that_were_answered_one_by_one_are_given_each_its_own_answer() {
    let host = Host::new().await;
    let mut session = host.open().await;
    let first = session.send("slow 600\ncount to 3").await;
    session.until(|event| matches!(event, EngineEvent::Delta(_))).await;
    let second = message("X = 9");
    assert_eq!(session.0.inject(second.clone()).await, Injected::Accepted);
    host.oracle.hurry();
    let answered = |request: &RecordedRequest| {
        let is_second = request.json()["messages"].to_string().contains("X = 9");
        is_second && !request.in_flight()
    };
    // Nobody hears of the second answer.
    session.rest().await;
    host.oracle.wait_for(answered, TOO_LONG).await.unwrap();
    let native = session.native();
    let is_answer = |line: &str| line.contains("\"type\":\"assistant\"") && line.contains("X = 9");
    host.has_kept(&native, is_answer).await;
    session.close().await;

    let mut session = host.resume(&native).await;
    let (earlier, third) = (Some(Earlier::default()), message("add 1 to x"));
    let mut input = TurnInput { messages: vec![first, second, third], earlier, ..TurnInput::default() };
    for said in ["1 2 3", "X = 9", "X = 10"] {
        session.0.send(input.clone()).await.unwrap();
        let events = session.rest().await;
        assert_eq!(answer(&events), said, "{events:?}");
        let next = input.messages.remove(0);
        assert_eq!(done(&events).answered, [next.id]);
        input.earlier = None;
    }
    assert_eq!(host.requests().len(), 3, "nothing was asked twice");
}

#[tokio::test]
async fn a_process_that_is_lost_between_turns_is_started_again() {
    let host = Host::new().await;
    let spec = host.spec(None);
    let owner = spec.session.clone();
    let mut session = host.open_spec(spec).await;
    session.chat("X = 5").await;
    assert_eq!(kill_leftovers(&owner), 1);
    let cold = async {
        while session.0.is_warm() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TOO_LONG, cold).await.expect("the loss is seen");
    assert_eq!(session.chat("what is X").await, "X = 5");
}

#[tokio::test]
async fn nothing_is_left_after_the_end_of_a_session_however_it_ends() {
    let host = Host::new().await;
    for graceful in [true, false] {
        let mut session = host.open().await;
        session.send(&format!("sleep {} then say never", forever())).await;
        session.until_asleep().await;
        if graceful {
            session.close().await;
        } else {
            drop(session);
        }
        let gone = async {
            while is_asleep() || is_running(&host.path("config").display().to_string()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TOO_LONG, gone).await.expect("all are gone");
    }
}
