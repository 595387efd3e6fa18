//! Whether a transcript has what is stored of its session, and what the real CLI makes of one that has.

use std::fs;

use roundhouse_engines::contract::{EngineError, Fork, Native};
use roundhouse_oracle::Oracle;
use serde_json::Value;

use crate::cli::{Cli, ask};
use crate::place::Place;
use crate::recorded::record;

/// Three turns, in two processes, which make X 5, 6 and 7.
struct Three {
    place: Place,
    oracle: Oracle,
    native: Native,
    /// The anchors of the answers.
    anchors: [String; 3],
    lines: Vec<String>,
}

impl Three {
    async fn turns() -> Self {
        let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
        let native = place.session();
        let mut cli = Cli::open(&place, &native, &oracle.base_url());
        let five = cli.turn("X = 5").await.anchor;
        let six = cli.turn("add 1 to x").await.anchor;
        cli.close().await;
        let mut cli = Cli::open(&place, &native, &oracle.base_url());
        let seven = cli.turn("add 1 to x").await.anchor;
        cli.close().await;
        let lines = place.text(&native).lines().map(str::to_owned).collect();
        Self { place, oracle, native, anchors: [five, six, seven], lines }
    }

    /// Where the answer to a turn is.
    fn answer(&self, turn: usize) -> usize {
        let is_it =
            |line: &String| serde_json::from_str::<Value>(line).unwrap()["uuid"] == self.anchors[turn];
        self.lines.iter().position(is_it).unwrap()
    }

    /// The transcript up to and with a line.
    fn up_to(&self, line: usize) -> Vec<u8> {
        self.part(0..=line)
    }

    fn part(&self, lines: impl std::slice::SliceIndex<[String], Output = [String]>) -> Vec<u8> {
        self.lines[lines].iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
    }

    fn put(&self, bytes: &[u8]) {
        fs::write(self.place.transcripts().path(&self.native), bytes).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.place.transcripts().path(&self.native)).unwrap()
    }

    /// The anchor of the model's message that was written last.
    fn newest(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes()).into_owned();
        let entries: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let last = entries.iter().rfind(|entry| entry["type"] == "assistant").unwrap();
        last["uuid"].as_str().unwrap().to_owned()
    }

    fn check(&self, anchor: Option<&str>) -> Result<(), EngineError> {
        self.place.transcripts().check(&self.native, anchor)
    }

    fn fork(&self, turn: usize) -> Result<Native, EngineError> {
        let (source, at, into) = (self.native.clone(), self.anchors[turn].clone(), self.place.session());
        self.place.transcripts().fork(&Fork { source, at, into: into.clone(), title: None }).map(|_| into)
    }

    async fn recalls(&self, native: &Native) -> String {
        ask(&self.place, native, &self.oracle.base_url(), "what is x").await
    }
}

#[tokio::test]
async fn what_has_all_that_is_stored_is_resumed_and_copied() {
    let three = Three::turns().await;
    let (all, third) = (three.part(..), three.answer(2));
    let half = |line: usize| &three.lines[line].as_bytes()[..three.lines[line].len() / 2];
    let second = three.answer(1);
    for (what, transcript) in [
        ("as it was", all.clone()),
        ("without the last line break", all[..all.len() - 1].to_vec()),
        ("the last line cut short", all[..all.len() - 20].to_vec()),
        (
            "the answer is the last line, and not ended",
            three.up_to(third)[..three.up_to(third).len() - 1].to_vec(),
        ),
        ("NULs behind the answer", [three.up_to(third), vec![0; 70_000]].concat()),
        ("NULs behind the answer, as a line", [three.up_to(third), vec![0; 4096], vec![b'\n']].concat()),
        ("an entry half written behind the answer", [&three.up_to(third), half(third)].concat()),
        ("all of it twice", [all.clone(), all.clone()].concat()),
        ("the first turn twice", [all.clone(), three.up_to(three.answer(0))].concat()),
        ("the answer twice", [all.clone(), three.part(third..=third)].concat()),
        (
            "lines that are none",
            [three.up_to(second), b"\0\0\0\nnonsense\n".to_vec(), three.part(second + 1..)].concat(),
        ),
    ] {
        three.put(&transcript);

        assert_eq!(three.check(Some(&three.anchors[2])), Ok(()), "{what}");

        assert!(three.bytes().ends_with(b"\n"), "{what}: the CLI appends to it");
        let copy = three.fork(2).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(three.recalls(&three.native).await, "X = 7", "{what}");
        // What the CLI has appended is read the next time, and so is all before.
        assert_eq!(three.check(Some(&three.newest())), Ok(()), "{what}");
        assert_eq!(three.recalls(&copy).await, "X = 7", "{what}: the copy");
    }
}

#[tokio::test]
async fn what_lacks_something_that_is_stored_is_neither_resumed_nor_copied() {
    let three = Three::turns().await;
    let (all, [first, second, third]) = (three.part(..), [0, 1, 2].map(|turn| three.answer(turn)));
    let half = |line: usize| &three.lines[line].as_bytes()[..three.lines[line].len() / 2];
    let zeroed = |line: usize| {
        let zeros = vec![0; three.lines[line].len()];
        [three.up_to(line - 1), zeros, b"\n".to_vec(), three.part(line + 1..)].concat()
    };
    for (what, transcript) in [
        ("put back to the first turn", three.up_to(first)),
        ("put back to the second turn", three.up_to(second)),
        ("without the third answer", three.up_to(third - 1)),
        ("the third answer cut short", [&three.up_to(third - 1), half(third)].concat()),
        (
            "the third answer cut short, and a line begun",
            [&three.up_to(third - 1), half(third), b"\n"].concat(),
        ),
        ("NULs in the place of the third answer", zeroed(third)),
        ("NULs in the place of the second answer", zeroed(second)),
        ("without the second answer", [three.up_to(second - 1), three.part(second + 1..)].concat()),
        ("without the second turn", [three.up_to(first), three.part(second + 1..)].concat()),
        ("without the beginning", three.part(first + 1..)),
        ("the end alone", three.part(third..)),
        ("empty", Vec::new()),
        ("NULs", vec![0; all.len()]),
        ("something else", b"nonsense\n".to_vec()),
        ("one half", all[..three.up_to(second).len() - 100].to_vec()),
    ] {
        three.put(&transcript);

        let found = three.check(Some(&three.anchors[2]));

        assert!(matches!(found, Err(EngineError::Behind(_))), "{what}: {found:?}");
        assert_eq!(three.bytes(), transcript, "{what}: it was not touched");
        let copied = three.fork(2);
        assert!(matches!(copied, Err(EngineError::Behind(_))), "{what}: {copied:?}");
    }
    // What is there is copied, whatever else is not.
    three.put(&three.up_to(first));
    let copy = three.fork(0).unwrap();
    assert_eq!(three.recalls(&copy).await, "X = 5");
}

#[tokio::test]
async fn without_an_anchor_the_transcript_has_to_be_whole() {
    let three = Three::turns().await;
    let first = three.answer(0);
    three.put(&three.up_to(first));
    assert_eq!(three.check(None), Ok(()));
    three.put(&three.part(first + 1..));
    assert!(matches!(three.check(None), Err(EngineError::Behind(_))));
    for nothing in [&b""[..], b"nonsense\n", br#"{"type":"queue-operation"}"#] {
        three.put(nothing);
        assert!(matches!(three.check(None), Err(EngineError::ResumeDropped(_))));
    }
    fs::remove_file(three.place.transcripts().path(&three.native)).unwrap();
    for anchor in [None, Some(&*three.anchors[2])] {
        assert!(matches!(three.check(anchor), Err(EngineError::ResumeDropped(_))));
    }
    assert!(matches!(three.fork(2), Err(EngineError::ResumeDropped(_))));
}

#[tokio::test]
async fn every_anchor_of_a_long_session_is_found_in_it() {
    let place = Place::new();
    let recorded = record(&place).await;
    let transcripts = place.transcripts();
    let newest = place.last_anchor(&recorded.native);
    let (_, forked) = place.fork(&recorded.native, &newest);
    assert!(forked.anchors.len() > 20, "{forked:?}");
    for anchor in forked.anchors.keys() {
        assert_eq!(transcripts.check(&recorded.native, Some(anchor)), Ok(()), "{anchor}");
    }
    let other = Some("00000000-0000-4000-8000-000000000000");
    assert!(matches!(transcripts.check(&recorded.native, other), Err(EngineError::Behind(_))));
}

/// Prints how long it takes.
#[tokio::test]
async fn a_large_transcript_is_checked() {
    let three = Three::turns().await;
    let request = format!("{{\"type\":\"api-request\",\"body\":\"{}\"}}\n", "x".repeat(1 << 20));
    let mut large = request.repeat(90).into_bytes();
    large.extend(three.part(..));
    three.put(&large);
    let began = std::time::Instant::now();
    assert_eq!(three.check(Some(&three.anchors[2])), Ok(()));
    println!("{} MiB: {:?}", large.len() >> 20, began.elapsed());
}
