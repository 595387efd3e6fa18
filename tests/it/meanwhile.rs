//! Messages sent while the agent works, on every engine: each reaches it, and its sender gets the answer to it.

use serde_json::{Value, json};

use crate::support::{
    COUNTED, Deployment, Engine, Events, Gate, Kind, LONG, names_of, on_every_engine, text, until,
};

on_every_engine!(five_chats_have_the_full_stream: Embedded, Distributed);
async fn five_chats_have_the_full_stream(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let mut session = None;
    for n in 1..=5 {
        let message = if n == 1 { "X = 1" } else { "add 1 to x" };
        let events = client.stream_with(engine.agent(), session.as_deref(), message).await.all().await;
        let told = [
            "job.accepted",
            "chat.user_message",
            "job.started",
            "turn.started",
            "message.completed",
            "turn.completed",
            "done",
            "error",
        ];
        let wanted: Vec<_> = told.iter().copied().filter(|name| *name != "error").collect();
        assert_eq!(names_of(&events, &told), wanted, "chat {n}: {events:?}");
        let said: String = events
            .iter()
            .filter(|event| event.name == "message.delta")
            .map(|event| text(&event.data["text"]))
            .collect();
        let done = &events.last().unwrap().data;
        assert_eq!((&*said, &done["content"]), (&*format!("X = {n}"), &json!(said)), "chat {n}");
        assert_eq!((&done["iterations"], &done["injected"]), (&json!(1), &json!(false)));
        assert!(0 < done["tokenUsage"]["input"].as_i64().unwrap(), "{done}");
        assert!(0 < done["tokenUsage"]["output"].as_i64().unwrap(), "{done}");
        session = Some(text(&done["sessionId"]));
    }
    deployment.end().await;
}

on_every_engine!(a_message_while_the_model_speaks_is_a_turn_of_its_own: Embedded, Distributed);
async fn a_message_while_the_model_speaks_is_a_turn_of_its_own(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut session = None;
    for round in 1..=5 {
        let mut first = client.stream_with(engine.agent(), session.as_deref(), LONG).await;
        let id = text(&first.until("message.delta").await.data["sessionId"]);
        let mut second = other.stream_with(engine.agent(), Some(&id), &format!("say second {round}")).await;
        let accepted = second.next().await.unwrap();
        assert_eq!((&*accepted.name, &accepted.data["kind"]), ("job.accepted", &json!("inject")));
        deployment.oracle.hurry();

        let first = end(first).await;
        assert_eq!(
            (&first["content"], &first["injected"]),
            (&json!(COUNTED), &json!(false)),
            "round {round}"
        );
        let mut events = vec![accepted];
        events.append(&mut second.all().await);
        let second = events.last().unwrap().data.clone();
        let of = |name: &str| events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
        let [delivered] = of("injection.delivered")[..] else { panic!("{events:?}") };
        let delivered = &delivered.data;
        // Its stream has what is said to it, and nothing of what was said to others.
        let said: String = of("message.delta").iter().map(|event| text(&event.data["text"])).collect();
        assert_eq!(said, second["content"], "{events:?}");
        for once in ["job.started", "message.completed", "turn.completed"] {
            assert_eq!(of(once).len(), 1, "{once}: {events:?}");
        }
        assert_eq!(second["content"], format!("second {round}"), "{second}");
        assert_eq!((&second["injected"], &second["cancelled"]), (&json!(true), &json!(false)));
        assert_ne!(second["turnId"], first["turnId"]);
        assert_eq!(
            (&delivered["turnId"], &delivered["merged"]),
            (&second["turnId"], &json!([second["jobId"]]))
        );
        for answer in [&first, &second] {
            assert_eq!(answer["iterations"], 1, "{answer}");
            assert!(0 < answer["tokenUsage"]["input"].as_i64().unwrap(), "{answer}");
            assert!(0 <= answer["durationMs"].as_i64().unwrap(), "{answer}");
        }
        session = Some(id);
    }
    deployment.end().await;
}

on_every_engine!(a_message_during_a_tool_is_answered_by_that_turn: Embedded, Distributed);
async fn a_message_during_a_tool_is_answered_by_that_turn(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.asking()).await;
    let mut events = client.follow(&session, None).await;
    let gate = Gate::closed();
    let first = client.waiting_with(engine.asking(), &session, "sleep 0 then say x");
    client.have_it_run(&session, &gate.command("hi")).await;
    until("the tool to run", async || (gate.begun() == 1).then_some(())).await;

    let mut both = Vec::new();
    for message in ["X = 7", "add 1 to x"] {
        both.push(other.waiting_with(engine.asking(), &session, message));
        deployment.in_reach(engine, &session, message).await;
    }
    gate.open();

    let first = first.result().await;
    let content = text(&first["content"]);
    assert!(content.contains("hi"), "{first}");
    assert!(content.contains("X = 7") && content.contains("X = 8"), "{first}");
    assert!(1 < first["iterations"].as_i64().unwrap(), "{first}");
    let mut jobs = Vec::new();
    for injected in both {
        let injected = injected.result().await;
        jobs.push(injected["jobId"].clone());
        for same in ["content", "turnId", "messageId", "iterations", "tokenUsage"] {
            assert_eq!(first[same], injected[same], "{same}");
        }
        assert_eq!((&injected["injected"], &injected["cancelled"]), (&json!(true), &json!(false)));
    }
    let completed = events.until("tool.completed").await.data;
    assert_eq!((&completed["success"], &completed["turnId"]), (&json!(true), &first["turnId"]));
    assert!(text(&completed["result"]).contains("hi"), "{completed}");
    // Each is told with whom it has reached the model.
    for job in &jobs {
        let delivered = events.until("injection.delivered").await.data;
        assert_eq!((&delivered["jobId"], &delivered["merged"]), (job, &json!(jobs)));
    }
    assert_eq!(gate.begun(), 1, "the tool ran once");
    let next = client.chat_with(engine.asking(), Some(&session), "what is x").await.json();
    assert_eq!(next["content"], "X = 8");
    deployment.end().await;
}

on_every_engine!(a_tool_takes_its_time_whatever_is_said_meanwhile: Embedded);
async fn a_tool_takes_its_time_whatever_is_said_meanwhile(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let session = client.session_with(engine.agent()).await;
    let mut events = client.follow(&session, None).await;
    let first = client.waiting_with(engine.agent(), &session, "sleep 10 then say slept");
    let started = events.until("tool.started").await.data;

    let second = client.waiting_with(engine.agent(), &session, "say meanwhile");

    let completed = events.until("tool.completed").await.data;
    assert_eq!(completed["success"], true, "{completed}");
    let took = at(&completed) - at(&started);
    assert!(9_500 <= took, "the tool was cut off after {took} ms");
    let (first, second) = (first.result().await, second.result().await);
    assert!(text(&first["content"]).contains("slept"), "{first}");
    assert!(text(&second["content"]).contains("meanwhile"), "{second}");
    assert!(0 < second["tokenUsage"]["output"].as_i64().unwrap(), "{second}");
    deployment.end().await;
}

on_every_engine!(messages_from_the_first_moment_on_are_answered: Embedded, Distributed);
async fn messages_from_the_first_moment_on_are_answered(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    for moment in ["job.accepted", "job.started", "turn.started"] {
        // A session whose engine has yet to start.
        let mut first = client.stream_with(engine.agent(), None, "X = 5").await;
        let session = text(&first.until(moment).await.data["sessionId"]);

        let second = other.chat_with(engine.agent(), Some(&session), "add 1 to x").await.json();

        let first = end(first).await;
        assert!(text(&first["content"]).contains("X = 5"), "{moment}: {first}");
        assert!(text(&second["content"]).contains("X = 6"), "{moment}: {second}");
        let next = client.chat_with(engine.agent(), Some(&session), "what is x").await.json();
        assert_eq!(next["content"], "X = 6", "{moment}");
    }
    deployment.end().await;
}

on_every_engine!(twenty_messages_over_five_turns_keep_their_order: Embedded, Distributed);
async fn twenty_messages_over_five_turns_keep_their_order(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.agent()).await;
    let mut events = client.follow(&session, None).await;
    let (mut jobs, mut wanted) = (Vec::new(), Vec::new());
    for turn in 0..5 {
        let first = client.later_with(engine.agent(), &session, &format!("slow 600 say turn {turn}")).await;
        events.until("message.delta").await;
        let mut sent = vec![(text(&first["jobId"]), format!("turn {turn}"))];
        for n in 0..4 {
            let client = if n % 2 == 0 { client } else { other };
            let word = format!("word {turn}.{n}");
            let job = client.later_with(engine.agent(), &session, &format!("say {word}")).await;
            sent.push((text(&job["jobId"]), word));
        }
        for (job, word) in sent {
            let ended = deployment.hurried(&job).await;
            assert!(text(&ended["result"]["content"]).contains(&word), "{word}: {ended}");
            jobs.push(job);
            wanted.push(word);
        }
    }
    // What the model was shown, and when.
    let last = client.chat_with(engine.agent(), Some(&session), "say last").await;
    assert_eq!(last.json()["content"], "last");
    let told = deployment.told_last().join("\n");
    let places: Vec<_> = wanted.iter().map(|word| told.find(&format!("say {word}")).expect(word)).collect();
    assert!(places.is_sorted(), "{told}");
    for word in &wanted {
        assert_eq!(told.matches(&format!("say {word}\n")).count(), 1, "{word} in {told}");
    }
    deployment.end().await;
}

on_every_engine!(a_caller_who_leaves_finds_the_answer: Embedded, Distributed);
async fn a_caller_who_leaves_finds_the_answer(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let mut first = client.stream_with(engine.agent(), None, LONG).await;
    let session = text(&first.until("message.delta").await.data["sessionId"]);

    let mut second = client.stream_with(engine.agent(), Some(&session), "say still here").await;
    let job = text(&second.next().await.unwrap().data["jobId"]);
    drop(second);
    deployment.oracle.hurry();

    assert_eq!(end(first).await["content"], COUNTED);
    let ended = deployment.other().ended(&job).await;
    assert_eq!((&ended["state"], &ended["result"]["content"]), (&json!("succeeded"), &json!("still here")));
    deployment.end().await;
}

on_every_engine!(a_caller_who_cannot_wait_is_told_where_the_answer_will_be: Embedded);
async fn a_caller_who_cannot_wait_is_told_where_the_answer_will_be(kind: Kind, engine: Engine) {
    let mut options = engine.options();
    options.env.push(("ROUNDHOUSE_INJECTION_TIMEOUT", "1s".to_owned()));
    let deployment = Deployment::with(kind, options).await;
    let client = deployment.client();
    let mut first = client.stream_with(engine.agent(), None, LONG).await;
    let session = text(&first.until("message.delta").await.data["sessionId"]);

    let second = client.chat_with(engine.agent(), Some(&session), "say at last").await;

    assert_eq!(second.code(), "504 INJECTION_TIMEOUT");
    let job = text(&second.json()["correlationId"]);
    deployment.oracle.hurry();
    assert_eq!(end(first).await["content"], COUNTED);
    assert_eq!(client.ended(&job).await["result"]["content"], "at last");
    let said: Vec<_> = client.messages(&session).await;
    assert_eq!(said.iter().filter(|message| message.ends_with("at last")).count(), 2, "{said:?}");
    deployment.end().await;
}

on_every_engine!(a_failure_of_one_message_leaves_the_other_answered: Embedded, Distributed);
async fn a_failure_of_one_message_leaves_the_other_answered(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let client = deployment.client();
    let mut first = client.stream_with(engine.agent(), None, LONG).await;
    let session = text(&first.until("message.delta").await.data["sessionId"]);
    let second = deployment.other().waiting_with(engine.agent(), &session, "fail 400");
    until("both to be stored", async || (client.session(&session).await["messageCount"] == 2).then_some(()))
        .await;
    deployment.oracle.hurry();

    assert_eq!(end(first).await["content"], COUNTED);
    let second = second.answer().await.unwrap();
    assert_eq!(second.code(), "502 ENGINE_FAILED");
    let next = client.chat_with(engine.agent(), Some(&session), "X = 3").await.json();
    assert!(text(&next["content"]).ends_with("X = 3"), "{next}");
    deployment.end().await;
}

/// The data of a stream's last event.
async fn end(events: Events) -> Value {
    let events = events.all().await;
    let last = events.last().expect("an event").clone();
    assert_eq!(last.name, "done", "{events:?}");
    last.data
}

/// When an event happened, in milliseconds of the day.
fn at(data: &Value) -> i64 {
    let time = text(&data["at"]);
    let clock = time.split_once('T').unwrap().1.trim_end_matches('Z').to_owned();
    let numbers: Vec<f64> = clock.split(':').map(|part| part.parse().unwrap()).collect();
    #[expect(clippy::cast_possible_truncation, reason = "a day has fewer milliseconds")]
    let milliseconds = ((numbers[0] * 60.0 + numbers[1]) * 60.0 + numbers[2]).mul_add(1000.0, 0.0) as i64;
    milliseconds
}
