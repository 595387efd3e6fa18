//! Cuts of Claude Code's sessions, and processes: those that have a conversation open, and those that die over it.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::support::{
    Client, Deployment, Engine, Kind, LONG, Options, clis, native_of, note, on, processes_of, started_for,
    text, until,
};

const AGENT: &str = "claude";

on!(no_process_outlives_the_conversation_that_it_has_open: Embedded, Distributed);
async fn no_process_outlives_the_conversation_that_it_has_open(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let session = client.session_with(AGENT).await;
    for message in ["X = 6", "add 5 to x"] {
        client.says(AGENT, &session, message).await;
    }
    // Kept warm, whichever worker carries the cut out.
    let native = native_of(client, &session).await;
    assert_eq!(processes_of(&native).len(), 1);
    let at = client.id_of(&session, "X = 6").await + 1;
    other.trim_natively(&session, at).await;
    assert!(processes_of(&native).is_empty(), "a process has open what was cut");
    assert_eq!(deployment.recalls(client, AGENT, &session).await, "X = 6");
    assert!(deployment.files_of(&native).is_empty(), "what was cut has come back");

    // A copy that nobody has used is deleted, and the session that it was for runs on.
    let native = native_of(client, &session).await;
    let mut turn = client.stream_with(AGENT, Some(&session), LONG).await;
    turn.until("message.delta").await;
    let running = processes_of(&native);
    let orphan = "INSERT INTO doomed_natives (native_session_id, session_id, agent, engine, cwd, host, due_ms, attempt) \
                  SELECT '00000000-0000-7000-8000-000000000000', id, agent, engine, cwd, native_host, 0, 0 FROM sessions";
    deployment.sql(orphan).await;
    until("the copy to be deleted", async || (deployment.count("doomed_natives").await == 0).then_some(()))
        .await;
    deployment.oracle.hurry();
    assert_eq!(turn.all().await.last().unwrap().name, "done");
    assert_eq!(processes_of(&native), running, "it is the same process, kept warm");

    other.reset(&session).await;
    assert!(processes_of(&native).is_empty(), "a process has open what was reset");
    deployment.forgotten(&native).await;
    client.says(AGENT, &session, "X = 1").await;
    let native = native_of(client, &session).await;
    let deleted = other.send(other.request("DELETE", &format!("/sessions/{session}"))).await;
    assert_eq!(deleted.status, 204, "{}", deleted.body);
    deployment.forgotten(&native).await;
    deployment.end().await;
}

on!(a_fork_leaves_the_sources_process_and_what_it_does: Embedded);
async fn a_fork_leaves_the_sources_process_and_what_it_does(kind: Kind) {
    let env = vec![("ROUNDHOUSE_ENGINE_IDLE", "10m".to_owned())];
    let deployment = Deployment::with(kind, Options { env, ..Engine::Claude.options() }).await;
    let client = deployment.client();
    let session = client.session_with(AGENT).await;
    // Goes on in the background when its turn has ended.
    let answer = client.chat_with(AGENT, Some(&session), "background 600 then say done").await.json();
    let native = native_of(client, &session).await;
    let kept = clis(&native);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let sleeping = || -> Vec<u32> {
        let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        started_for(&session).into_iter().filter(|pid| name(pid).trim() == "sleep").collect()
    };
    let asleep = sleeping();
    assert_eq!(asleep.len(), 1, "it runs in the background");
    let at = answer["messageId"].as_i64().unwrap();
    let temporary = deployment.claude_dir().join("tmp");
    assert!(deployment.files_of(&native).iter().any(|file| file.starts_with(&temporary)));

    client.fork_natively(&session, at).await;
    assert_eq!(client.says(AGENT, &session, "X = 9").await, "X = 9");
    assert_eq!((clis(&native), sleeping()), (kept, asleep), "it is the same process, and works on");
    client.trim_natively(&session, at).await;
    assert!(processes_of(&native).is_empty(), "a process has open what was cut");
    until("what it had started to be ended", async || sleeping().is_empty().then_some(())).await;
    // With all that it has written, also what its commands said in the background.
    deployment.forgotten(&native).await;
    deployment.end().await;
}

/// A session that is at 6 and then at 11; returns the message that says 6 as well.
async fn at_eleven(client: &Client) -> (String, i64) {
    let session = client.session_with(AGENT).await;
    client.says(AGENT, &session, "X = 6").await;
    client.says(AGENT, &session, "add 5 to x").await;
    let at = client.said(&session, "X = 6").await;
    (session, at)
}

/// Copies that are announced, and that no commit has used: they come due later than anything else on that list.
const ANNOUNCED: &str = "doomed_natives WHERE due_ms > 1000 * (extract(epoch FROM clock_timestamp()) + 300)";

/// Makes a transcript so large that it is not copied in a moment, with lines that mean nothing.
fn make_large(transcript: &Path) {
    let line = format!("{{\"type\":\"nothing\",\"text\":\"{}\"}}\n", "word ".repeat(200));
    let mut file = std::fs::OpenOptions::new().append(true).open(transcript).unwrap();
    file.write_all(line.repeat(10_000).as_bytes()).unwrap();
}

on!(a_native_cut_outlives_the_workers_that_die_over_it: Distributed);
async fn a_native_cut_outlives_the_workers_that_die_over_it(kind: Kind) {
    let options = Options { workers: 1, lease: "4s", ..Engine::Claude.options() };
    let mut deployment = Deployment::with(kind, options).await;
    let client = deployment.client().clone();
    let sessions = join_all((0..2).map(|_| at_eleven(&client))).await;
    let mut in_vain = 0;
    for round in 0..3_u64 {
        for (session, _) in &sessions {
            make_large(&deployment.transcript(&native_of(&client, session).await));
        }
        let killed = deployment.workers.len() - 1;
        let (trimmed, ()) =
            tokio::join!(join_all(sessions.iter().map(|(session, at)| client.trim(session, *at))), async {
                until("a copy to be announced", async || {
                    let ended =
                        deployment.other().items("/jobs?kind=trim&state=succeeded").await.len() as u64;
                    let is_announced = in_vain < deployment.count(ANNOUNCED).await;
                    (is_announced || 2 * (round + 1) <= ended).then_some(())
                })
                .await;
                // Somewhere on the way: before a copy, or in its middle.
                tokio::time::sleep(Duration::from_millis(round * 50)).await;
                deployment.workers[killed].kill().await;
                deployment.add_worker();
            });
        deployment.await_agent().await;
        for ((session, _), trimmed) in sessions.iter().zip(trimmed) {
            assert_eq!(trimmed.status, 200, "round {round}: {}", trimmed.body);
            assert_eq!(trimmed.json()["deleted"], 2, "round {round}: {}", trimmed.body);
            let native = native_of(&client, session).await;
            assert!(deployment.transcript(&native).is_file());
            assert_eq!(deployment.recalls(&client, AGENT, session).await, "X = 6", "round {round}");
        }
        in_vain = deployment.count(ANNOUNCED).await;
    }
    // What was copied in vain is on the list, and goes when its time has come.
    note(&format!("copied in vain: {in_vain}"));
    assert!(0 < in_vain, "no worker died over a copy");
    deployment.sql("UPDATE doomed_natives SET due_ms = 0").await;
    until("all copies to be used or gone", async || {
        (deployment.count("doomed_natives").await == 0).then_some(())
    })
    .await;
    let mut kept = deployment.transcripts();
    kept.sort();
    let mut used = join_all(sessions.iter().map(|(session, _)| native_of(&client, session))).await;
    used.sort();
    assert_eq!(kept, used);
    deployment.end().await;
}

on!(what_was_left_unanswered_is_told_once_whoever_dies: Embedded, Distributed);
async fn what_was_left_unanswered_is_told_once_whoever_dies(kind: Kind) {
    let options = Options { lease: "4s", ..Engine::Claude.options() };
    let mut deployment = Deployment::with(kind, options).await;
    let client = deployment.client().clone();
    let (session, _) = at_eleven(&client).await;
    let at = client.id_of(&session, "add 5 to x").await;
    client.trim_natively(&session, at).await;
    let mut events = client.follow(&session, None).await;
    let job = client.later_with(AGENT, &session, LONG).await;
    events.until("message.delta").await;

    deployment.kill_worker_of(&session).await;

    let client = deployment.other().clone();
    let job = deployment.hurried(&text(&job["jobId"])).await;
    assert!(text(&job["result"]["content"]).starts_with("X = 11"), "{job}");
    assert_eq!(client.says(AGENT, &session, "what is x").await, "X = 11");
    assert_eq!(deployment.told_last().join("\n").matches("add 5 to x").count(), 1);
    deployment.end().await;
}

on!(a_message_and_a_native_trim_at_the_same_instant: Embedded, Distributed);
async fn a_message_and_a_native_trim_at_the_same_instant(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, at) = at_eleven(client).await;
    for round in 0..10 {
        let (chat, trimmed) =
            tokio::join!(client.chat_with(AGENT, Some(&session), "what is x"), other.trim(&session, at));
        assert_eq!(chat.status, 200, "round {round}: {}", chat.body);
        let said = text(&chat.json()["content"]);
        let mut expected = vec!["user: X = 6", "assistant: X = 6"];
        match (trimmed.status, &*said) {
            (200, "X = 11") => assert_eq!(trimmed.json()["deleted"], 4, "round {round}: answered before it"),
            (200, "X = 6") => {
                assert_eq!(trimmed.json()["deleted"], 2, "round {round}: kept, and answered after it");
                expected.extend(["user: what is x", "assistant: X = 6"]);
            }
            _ => {
                assert_eq!((trimmed.code().as_str(), said.as_str()), ("409 SESSION_BUSY", "X = 11"));
                expected.extend(["user: add 5 to x", "assistant: X = 11"]);
                expected.extend(["user: what is x", "assistant: X = 11"]);
            }
        }
        assert_eq!(client.counts(&session).await, expected, "round {round}");
        // And back to where it was.
        client.trim_natively(&session, at).await;
        assert_eq!(client.says(AGENT, &session, "add 5 to x").await, "X = 11", "round {round}");
    }
    deployment.end().await;
}

on!(ten_native_forks_at_once: Embedded, Distributed);
async fn ten_native_forks_at_once(kind: Kind) {
    let deployment = Deployment::of(kind, Engine::Claude).await;
    let clients = [deployment.client(), deployment.other()];
    let (source, at) = at_eleven(clients[0]).await;
    // A session that is forked is busy: whoever comes second tries again.
    let forks = join_all((0..10).map(async |n: usize| {
        let body = json!({ "upToMessageId": at, "requireAnchor": true });
        until("a fork", async || {
            let answer = clients[n % 2].fork(&source, &body).await;
            if answer.status == 409 {
                assert_eq!(answer.code(), "409 SESSION_BUSY");
                return None;
            }
            assert_eq!(answer.status, 201, "{}", answer.body);
            Some(text(&answer.json()["sessionId"]))
        })
        .await
    }))
    .await;
    let mut natives = join_all(forks.iter().map(|fork| native_of(clients[0], fork))).await;
    natives.sort();
    natives.dedup();
    assert_eq!(natives.len(), 10, "each has its own");
    // Some at once, the rest one after another: each is a process.
    let answers = join_all(
        forks[..4]
            .iter()
            .enumerate()
            .map(async |(n, fork)| clients[n % 2].says(AGENT, fork, &format!("add {n} to x")).await),
    )
    .await;
    assert_eq!(answers, ["X = 6", "X = 7", "X = 8", "X = 9"]);
    assert_eq!(deployment.recalls(clients[1], AGENT, &forks[9]).await, "X = 6");
    assert_eq!(deployment.recalls(clients[0], AGENT, &source).await, "X = 11");
    deployment.end().await;
}
