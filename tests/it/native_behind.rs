//! Transcripts of Claude Code that lag behind what is stored: a backup was put back, the power failed, the disk was full.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Client, Deployment, Engine, Kind, Options, native_of, on, text};

const AGENT: &str = "claude";

/// No process is kept, which would know better.
async fn deployment(kind: Kind) -> Deployment {
    let env = vec![("ROUNDHOUSE_ENGINE_IDLE", "0s".to_owned())];
    Deployment::with(kind, Options { env, ..Engine::Claude.options() }).await
}

/// Three turns that make X 5, 6 and 7, and the transcript after each.
struct Counted {
    session: String,
    native: String,
    transcript: PathBuf,
    states: [Vec<u8>; 3],
}

impl Counted {
    async fn to_seven(deployment: &Deployment) -> Self {
        let client = deployment.client();
        let session = client.session_with(AGENT).await;
        let mut states = Vec::new();
        for message in ["X = 5", "add 1 to x", "add 1 to x"] {
            client.says(AGENT, &session, message).await;
            states.push(fs::read(deployment.transcript(&native_of(client, &session).await)).unwrap());
        }
        let native = native_of(client, &session).await;
        let transcript = deployment.transcript(&native);
        Self { session, native, transcript, states: states.try_into().unwrap() }
    }

    /// The transcript without the line of the last answer, or with only a part of it.
    fn last_answer_cut_to(&self, part: impl Fn(&str) -> String) -> Vec<u8> {
        let text = String::from_utf8_lossy(&self.states[2]).into_owned();
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let last =
            lines.iter().rposition(|line| line.contains("\"X = 7\"") && line.contains("\"assistant\""));
        let last = last.expect("the last answer");
        (lines[..last].concat() + &part(lines[last])).into_bytes()
    }

    /// Ways to lose the last answer.
    fn lost(&self) -> Vec<(&'static str, Vec<u8>)> {
        let [first, second, third] = &self.states;
        let middle = {
            let text = String::from_utf8_lossy(third).into_owned();
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let is_second =
                |line: &&str| line.contains("\"X = 6\"") && line.contains("\"type\":\"assistant\"");
            lines.into_iter().filter(|line| !is_second(line)).collect::<String>().into_bytes()
        };
        vec![
            ("put back to the first turn", first.clone()),
            ("put back to the second turn", second.clone()),
            (
                "cut short in the last answer",
                self.last_answer_cut_to(|line| line[..line.len() / 2].to_owned()),
            ),
            ("NULs from the last answer on", self.last_answer_cut_to(|line| "\0".repeat(line.len()))),
            ("without the second answer", middle),
            ("empty", Vec::new()),
            ("something else", b"garbage\n".to_vec()),
        ]
    }
}

async fn told(client: &Client, session: &str, message: &str) -> (Value, Value) {
    let answer = client.chat_with(AGENT, Some(session), message).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    (answer["content"].clone(), answer["contextSource"].clone())
}

on!(what_is_displayed_is_what_is_remembered_whatever_the_transcript_has: Embedded, Distributed);
async fn what_is_displayed_is_what_is_remembered_whatever_the_transcript_has(kind: Kind) {
    let deployment = deployment(kind).await;
    let client = deployment.client();
    let cases = Counted::to_seven(&deployment).await.lost().len();
    // Each in a session of its own; all of them where that costs least.
    let cases: Vec<usize> = if kind == Kind::Embedded { (0..cases).collect() } else { vec![0, 2] };
    for case in cases {
        let counted = Counted::to_seven(&deployment).await;
        let (what, transcript) = counted.lost().swap_remove(case);
        fs::write(&counted.transcript, transcript).unwrap();
        let mut events = client.follow(&counted.session, None).await;

        let answer = told(deployment.other(), &counted.session, "what is x").await;

        assert_eq!(answer, (json!("X = 7"), json!("replay")), "{what}");
        assert_eq!(events.until("context.reset").await.data["reason"], "transcript_behind", "{what}");
        assert_ne!(native_of(client, &counted.session).await, counted.native, "{what}");
        assert_eq!(
            told(client, &counted.session, "add 1 to x").await,
            (json!("X = 8"), json!("native")),
            "{what}"
        );
        deployment.forgotten(&counted.native).await;
    }
    deployment.end().await;
}

on!(a_transcript_whose_end_is_torn_behind_the_last_answer_is_gone_on_with: Embedded);
async fn a_transcript_whose_end_is_torn_behind_the_last_answer_is_gone_on_with(kind: Kind) {
    let deployment = deployment(kind).await;
    let client = deployment.client();
    for torn in [&b"{\"type\":\"last-pro"[..], &[0; 5000]] {
        let counted = Counted::to_seven(&deployment).await;
        fs::write(&counted.transcript, [&counted.states[2], torn].concat()).unwrap();

        assert_eq!(told(client, &counted.session, "what is x").await, (json!("X = 7"), json!("native")));
        assert_eq!(told(client, &counted.session, "add 1 to x").await, (json!("X = 8"), json!("native")));
        assert_eq!(native_of(client, &counted.session).await, counted.native);
    }
    deployment.end().await;
}

on!(a_cut_of_what_the_transcript_has_not_falls_back_to_the_messages: Embedded, Distributed);
async fn a_cut_of_what_the_transcript_has_not_falls_back_to_the_messages(kind: Kind) {
    let deployment = deployment(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let counted = Counted::to_seven(&deployment).await;
    let session = &*counted.session;
    let at = client.said(session, "X = 7").await;
    for (what, transcript) in counted.lost() {
        fs::write(&counted.transcript, transcript).unwrap();

        let refused = other.fork(session, &json!({ "upToMessageId": at, "requireAnchor": true })).await;
        assert_eq!(refused.code(), "409 NO_FORK_ANCHOR", "{what}");
        let forked = other.fork(session, &json!({ "upToMessageId": at })).await;

        assert_eq!(forked.status, 201, "{what}: {}", forked.body);
        let forked = forked.json();
        assert_eq!(
            (&forked["claudeForked"], &forked["contextSource"]),
            (&json!(false), &json!("replay")),
            "{what}"
        );
        let fork = text(&forked["sessionId"]);
        assert_eq!(told(client, &fork, "what is x").await, (json!("X = 7"), json!("replay")), "{what}");
    }
    fs::remove_file(&counted.transcript).unwrap();
    let forked = client.fork(session, &json!({})).await.json();
    assert_eq!(forked["contextSource"], "replay", "the transcript is gone: {forked}");

    let at = client.said(session, "X = 6").await;
    let trimmed = client.trim(session, at).await;

    assert_eq!(trimmed.status, 200, "{}", trimmed.body);
    assert_eq!(trimmed.json()["contextSource"], "replay", "{}", trimmed.body);
    assert_eq!(told(client, session, "what is x").await, (json!("X = 6"), json!("replay")));
    assert_eq!(deployment.recalls(client, AGENT, session).await, "X = 6");
    deployment.end().await;
}

on!(what_the_transcript_still_has_is_copied_natively: Embedded);
async fn what_the_transcript_still_has_is_copied_natively(kind: Kind) {
    let deployment = deployment(kind).await;
    let client = deployment.client();
    let counted = Counted::to_seven(&deployment).await;
    fs::write(&counted.transcript, &counted.states[0]).unwrap();

    let fork = client.fork_natively(&counted.session, client.said(&counted.session, "X = 5").await).await;

    assert_eq!(deployment.recalls(client, AGENT, &fork).await, "X = 5");
    assert_eq!(told(client, &counted.session, "what is x").await, (json!("X = 7"), json!("replay")));
    deployment.end().await;
}
