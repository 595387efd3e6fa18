//! The end of a turn and what comes around it, on every engine: races, cancels, workers that die.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Client, Deployment, Engine, Gate, Kind, LONG, Sleepers, note, on_every_engine, text, until,
};
use crate::tools::cancel;

const CANCELLED: &str = "(target session cancelled)";

/// Messages around the end of a turn, over all sessions.
const RACES: usize = 500;
/// The same where every other turn starts a program: two workers each keep one of their own.
const SLOW_RACES: usize = 60;
const SESSIONS: usize = 4;

/// So many rounds, or fewer where each takes seconds of this machine's time.
const fn rounds(kind: Kind, engine: Engine, many: usize, few: usize) -> usize {
    match (kind, engine) {
        (Kind::Distributed, Engine::Claude) => few,
        _ => many,
    }
}

on_every_engine!(a_message_around_the_end_of_a_turn_is_answered_once: Embedded, Distributed);
async fn a_message_around_the_end_of_a_turn_is_answered_once(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let races = rounds(kind, engine, RACES, SLOW_RACES);
    let sessions =
        (0..SESSIONS).map(|session| around_the_end(&deployment, engine, session, races / SESSIONS));
    let folded: usize = join_all(sessions).await.into_iter().sum();
    note(&format!("{races} messages, {folded} of them in the turn that ran"));
    deployment.end().await;
}

/// One message after another, each with a second one at about the time when its answer is there. Returns how many of those
/// were answered by the turn of the first.
async fn around_the_end(deployment: &Deployment, engine: Engine, n: usize, rounds: usize) -> usize {
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.agent()).await;
    client.chat_with(engine.agent(), Some(&session), "say begun").await;
    let mut random = Random::new(n);
    let mut folded = 0;
    let mut turn = Duration::from_millis(50);
    for round in 0..rounds {
        let (a, b) = (format!("a{n}.{round}."), format!("b{n}.{round}."));
        // Within 50 ms of when the last turn ended, before or after.
        let end = turn + Duration::from_millis(50);
        let delay = end.saturating_sub(Duration::from_micros(random.below(100_000)));
        let started = Instant::now();
        let first = async {
            let first = client.chat_with(engine.agent(), Some(&session), &format!("say {a}")).await.json();
            (first, started.elapsed())
        };
        let second = async {
            tokio::time::sleep(delay).await;
            other.chat_with(engine.agent(), Some(&session), &format!("say {b}")).await.json()
        };
        let ((first, took), second) = tokio::join!(first, second);
        turn = took.min(Duration::from_secs(1));
        assert!(text(&first["content"]).contains(&a), "{first}");
        assert_eq!(text(&second["content"]).matches(&b).count(), 1, "{second}");
        let same = first["turnId"] == second["turnId"];
        assert!(same || !text(&first["content"]).contains(&b), "{first} {second}");
        folded += usize::from(same);
    }
    // The first, its answer, and at least one answer a round.
    let stored = client.session(&session).await["messageCount"].as_u64().unwrap();
    let stored = usize::try_from(stored).unwrap();
    let sent = 1 + 2 * rounds;
    assert!((sent + 1 + rounds..=2 * sent).contains(&stored), "{stored} messages");
    folded
}

on_every_engine!(a_cancel_during_a_tool_ends_all_who_wait: Embedded, Distributed);
async fn a_cancel_during_a_tool_ends_all_who_wait(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let agent = engine.asking();
    let session = client.session_with(agent).await;
    assert_eq!(client.chat_with(agent, Some(&session), "X = 5").await.json()["content"], "X = 5");
    let sleepers = Sleepers::new();
    let first = client.waiting_with(agent, &session, "sleep 0 then say x");
    client.have_it_run(&session, &sleepers.command()).await;
    sleepers.are(2).await;
    let second = other.waiting_with(agent, &session, "say more");
    stored(client, &session, "say more").await;

    let asked = Instant::now();
    let cancelled = cancel(other, &session).await;
    let (first, second) = (first.result().await, second.result().await);
    note(&format!("both ended {:?} after the cancel", asked.elapsed()));

    assert_eq!(cancelled["turnId"], first["turnId"]);
    for result in [&first, &second] {
        assert_eq!((&result["cancelled"], &result["content"]), (&json!(true), &json!(CANCELLED)), "{result}");
    }
    sleepers.are(0).await;
    assert_eq!(client.session(&session).await["status"], "idle");
    let next = client.chat_with(agent, Some(&session), "what is x").await.json();
    assert_eq!((&next["content"], &next["cancelled"]), (&json!("X = 5"), &json!(false)));
    // Nothing of what was cancelled is answered later.
    let again = client.chat_with(agent, Some(&session), "add 1 to x").await.json();
    assert_eq!(again["content"], "X = 6");
    deployment.end().await;
}

on_every_engine!(a_cancel_while_a_person_is_asked_closes_the_question: Embedded, Distributed);
async fn a_cancel_while_a_person_is_asked_closes_the_question(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(engine.asking()).await;
    let first = client.waiting_with(engine.asking(), &session, "sleep 0 then say x");
    let question = client.asked(&session).await;
    assert_eq!(client.session(&session).await["status"], "waiting");
    let mut events = client.follow(&session, None).await;

    assert_eq!(cancel(other, &session).await["cancelled"], true);

    assert_eq!(first.result().await["cancelled"], true);
    let closed = events.until("interaction.resolved").await.data;
    assert_eq!(
        (&closed["interactionId"], &closed["state"]),
        (&question["id"], &json!("cancelled")),
        "{closed}"
    );
    let late = client.decide(&session, &question, &json!({ "decision": "allow" })).await;
    assert_eq!(late.code(), "409 INTERACTION_RESOLVED");
    // What was cancelled is not done with the next message.
    let next = client.chat_with(engine.asking(), Some(&session), "X = 2").await.json();
    assert_eq!(next["content"], "X = 2");
    deployment.end().await;
}

/// Rounds of a cancel against the end of the turn.
const CANCELS: usize = 100;
/// The same where every other turn starts a program.
const SLOW_CANCELS: usize = 20;

on_every_engine!(a_cancel_and_the_end_have_one_outcome: Embedded, Distributed);
async fn a_cancel_and_the_end_have_one_outcome(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let agent = engine.agent();
    let session = client.session_with(agent).await;
    client.chat_with(agent, Some(&session), "X = 0").await;
    let mut random = Random::new(7);
    let (mut turn, mut cancels) = (Duration::from_millis(100), 0);
    let rounds = rounds(kind, engine, CANCELS, SLOW_CANCELS);
    for round in 1..=rounds {
        let started = Instant::now();
        let mut events = client.stream_with(agent, Some(&session), &format!("X = {round}")).await;
        let job = text(&events.next().await.unwrap().data["jobId"]);
        let wait = turn.mul_f64(f64::from(u32::try_from(random.below(1_200)).unwrap()) / 1000.0);
        let asked = async {
            tokio::time::sleep(wait).await;
            cancel(other, &session).await
        };
        let (asked, events) = tokio::join!(asked, events.all());
        let ends: Vec<_> = events.iter().filter(|event| ["done", "error"].contains(&&*event.name)).collect();
        assert_eq!(ends.len(), 1, "round {round}: {events:?}");
        let done = &ends[0].data;
        let row = other.ended(&job).await;
        assert_eq!(row["result"], *done, "round {round}");
        assert_eq!(done["cancelled"], asked["cancelled"], "round {round}: {done} {asked}");
        if done["cancelled"] == true {
            assert_eq!(done["content"], CANCELLED);
            cancels += 1;
        } else {
            assert_eq!(done["content"], format!("X = {round}"));
            turn = started.elapsed().min(Duration::from_secs(1));
        }
        // A message right after it is answered normally, and a second cancel finds nothing.
        assert_eq!(cancel(other, &session).await, json!({"cancelled": false, "turnId": null}));
        let next = client.chat_with(agent, Some(&session), &format!("say after {round}")).await.json();
        assert!(text(&next["content"]).ends_with(&format!("after {round}")), "{next}");
        assert_eq!(next["cancelled"], false);
    }
    note(&format!("{cancels} of {rounds} were cancelled"));
    deployment.end().await;
}

on_every_engine!(messages_that_waited_when_the_worker_died_are_answered: Embedded, Distributed);
async fn messages_that_waited_when_the_worker_died_are_answered(kind: Kind, engine: Engine) {
    let mut options = engine.options();
    options.lease = "4s";
    let mut deployment = Deployment::with(kind, options).await;
    let agent = engine.asking();
    let session = deployment.client().session_with(agent).await;
    deployment.client().chat_with(agent, Some(&session), "X = 5").await;
    let gate = Gate::closed();
    let first = deployment.client().later_with(agent, &session, "sleep 0 then say x").await;
    deployment.client().have_it_run(&session, &gate.command("hi")).await;
    until("the tool to run", async || (gate.begun() == 1).then_some(())).await;
    let mut jobs = vec![text(&first["jobId"])];
    for word in ["one", "two"] {
        let job = deployment.other().later_with(agent, &session, &format!("say {word}")).await;
        jobs.push(text(&job["jobId"]));
    }

    deployment.kill_worker_of(&session).await;
    gate.open();

    let mut answers = Vec::new();
    for job in &jobs {
        let ended = deployment.client().ended(job).await;
        assert_eq!(ended["state"], "succeeded", "{ended}\n{}", deployment.logs());
        answers.push(text(&ended["result"]["content"]));
    }
    assert!(answers[1].contains("one"), "{answers:?}");
    assert!(answers[2].contains("two"), "{answers:?}");
    assert_eq!(gate.begun(), 1, "nobody but the model may call it again");
    let next = deployment.client().chat_with(agent, Some(&session), "what is x").await.json();
    assert!(text(&next["content"]).ends_with("X = 5"), "{next}");
    // Each message is in the context once.
    let told = deployment.oracle.requests().last().unwrap().json()["messages"].to_string();
    for word in ["say one", "say two", "sleep 0 then say x"] {
        assert_eq!(told.matches(word).count(), 1, "{word} in {told}");
    }
    deployment.end().await;
}

on_every_engine!(an_interrupting_message_is_answered_alone: Embedded, Distributed);
async fn an_interrupting_message_is_answered_alone(kind: Kind, engine: Engine) {
    let deployment = Deployment::of(kind, engine).await;
    let (client, other) = (deployment.client(), deployment.other());
    let mut first = client.stream_with(engine.agent(), None, LONG).await;
    let session = text(&first.until("message.delta").await.data["sessionId"]);
    let body = json!({"message": "say instead", "sessionId": session, "onBusy": "interrupt"});

    let second = other.post(&format!("/agents/{}/chat", engine.agent()), &body).await.json();

    let first = first.all().await.last().unwrap().data.clone();
    assert_eq!((&first["cancelled"], &first["content"]), (&json!(true), &json!(CANCELLED)));
    assert!(text(&second["content"]).ends_with("instead"), "{second}");
    assert_eq!((&second["injected"], &second["cancelled"]), (&json!(false), &json!(false)));
    let refused = json!({"message": "say no", "sessionId": session, "onBusy": "reject"});
    let idle = other.post(&format!("/agents/{}/chat", engine.agent()), &refused).await.json();
    assert!(text(&idle["content"]).ends_with("no"), "{idle}");
    deployment.end().await;
}

/// Waits until a message is stored.
async fn stored(client: &Client, session: &str, message: &str) {
    until("a message to be stored", async || {
        let said: Vec<Value> = client.items(&format!("/sessions/{session}/messages?limit=200")).await;
        said.iter().any(|known| known["content"] == message).then_some(())
    })
    .await;
}

/// Numbers that are different in each session, and the same in each run.
struct Random(u64);

impl Random {
    fn new(seed: usize) -> Self {
        Self(0x9E37_79B9_7F4A_7C15 ^ (seed as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    /// The next one below a bound (xorshift, Marsaglia 2003).
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
