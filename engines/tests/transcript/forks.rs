//! Copies of sessions, and what is remembered in them.

use std::fs;

use roundhouse_engines::contract::{EngineError, Fork, Native};
use roundhouse_oracle::Oracle;
use serde_json::Value;

use crate::cli::ask;
use crate::place::{Place, copy_folder, new_id, parsed};
use crate::recorded::{Recorded, long_words, record, short};
use crate::sdk;

#[tokio::test]
async fn at_every_point_a_copy_is_what_the_vendor_makes_and_is_remembered_alike() {
    let place = Place::new();
    let session = record(&place).await;
    let points = points(&place, &session);
    assert!(points.len() > 60, "{}", points.len());
    // The same folder names, so that even the paths in the texts are the same.
    let theirs = Place::new();
    copy_folder(&place.config(), &theirs.config());
    let vendors = sdk::forks(&theirs.config(), &session.native.id, &points).await;

    let source = place.text(&session.native);
    let mut closed = 0;
    for (point, vendors) in points.iter().zip(&vendors) {
        let (ours, forked) = place.fork(&session.native, point);
        let vendors = fs::read_to_string(theirs.transcripts().path(&place.named(vendors))).unwrap();
        let (ours, closing) = without_additions(&place, &ours, &session.native);
        closed += closing.len();
        let (ours, vendors) = (sdk::comparable(ours, &source), sdk::comparable(parsed(&vendors), &source));
        for (ours, theirs) in ours.iter().zip(&vendors) {
            assert_eq!(ours, theirs, "cut at {point}");
        }
        assert_eq!(ours.len(), vendors.len(), "cut at {point}");
        let is_result = |line: &Value| line["message"]["content"][0]["type"] == "tool_result";
        let is_anchor = |line: &&Value| line["type"] == "assistant" || is_result(line);
        assert_eq!(forked.anchors.len(), ours.iter().filter(is_anchor).count(), "cut at {point}");
    }
    // Two calls at once, cut behind each of them and behind the first result; and calls one at a time.
    assert!(closed >= 6, "{closed}");

    for (anchor, remembered) in session.answers.iter().step_by(2) {
        let at = points.iter().position(|point| point == anchor).unwrap();
        let (ours, forked) = place.fork(&session.native, anchor);
        assert_eq!(place.last_anchor(&ours), forked.anchors[anchor]);
        // Their copy is read by the same CLI in the same way.
        let vendors = Native { id: vendors[at].clone(), cwd: place.cwd.clone() };
        for (place, copy) in [(&place, &ours), (&theirs, &vendors)] {
            let answer = ask(place, copy, &session.oracle.base_url(), "what is X").await;
            assert_eq!(answer.lines().last(), Some(*remembered), "cut at {anchor}");
        }
    }
}

/// Every entry, and the message that was folded into a turn by the id under which it was sent.
fn points(place: &Place, session: &Recorded) -> Vec<String> {
    let entries = place.entries(&session.native);
    let uuids = entries.iter().map(|entry| entry["uuid"].as_str().unwrap().to_owned());
    uuids.chain([session.folded.clone()]).collect()
}

/// Our copy without what the vendor's does not have: its own large results, and results of calls that were cut off,
/// which are returned too.
fn without_additions(place: &Place, copy: &Native, source: &Native) -> (Vec<Value>, Vec<Value>) {
    let folder = |native: &Native| format!("{}/tool-results/", native.id);
    let text = place.text(copy).replace(&folder(copy), &folder(source));
    let is_ours = |line: &Value| line["toolDenialKind"] == "interrupted" && line.get("forkedFrom").is_none();
    parsed(&text).into_iter().partition(|line| !is_ours(line))
}

#[tokio::test]
async fn a_copy_of_a_copy_of_a_copy_remembers() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, [five, six]) = short(&place, &oracle).await;

    let (first, forked) = place.fork(&native, &six);
    let (second, again) = place.fork(&first, &forked.anchors[&six]);
    let five_in_second = &again.anchors[&forked.anchors[&five]];
    let (third, _) = place.fork(&second, five_in_second);

    for (native, remembered) in [(&second, "X = 6"), (&third, "X = 5"), (&native, "X = 6")] {
        assert_eq!(ask(&place, native, &oracle.base_url(), "what is X").await, remembered);
    }
    let from = &place.entries(&third)[0]["forkedFrom"];
    assert_eq!(from["sessionId"], second.id);
    let title = place.lines(&third).into_iter().rfind(|line| line["type"] == "custom-title").unwrap();
    assert_eq!(title["customTitle"], "X = 5 (fork) (fork) (fork)");
}

#[tokio::test]
async fn a_copy_outlives_its_source_with_the_large_results_of_tools() {
    let place = Place::new();
    let session = record(&place).await;
    let (copy, forked) = place.fork(&session.native, &session.large);
    let (second, _) = place.fork(&copy, &forked.anchors[&session.large]);
    let early = place.fork(&session.native, &session.answers[0].0).0;
    for gone in [&session.native, &copy] {
        place.transcripts().delete(gone).unwrap();
        assert_eq!(place.files_with(&gone.id), Vec::<std::path::PathBuf>::new());
        assert!(!place.text(&second).contains(&format!("{}/tool-results", gone.id)));
    }

    let is_in = |path: &&std::path::PathBuf| place.text(&second).contains(&*path.to_string_lossy());
    let files = place.files_with(&format!("{}/tool-results/", second.id));
    assert_eq!((files.len(), files.iter().filter(is_in).count()), (1, 1), "{files:?}");
    assert_eq!(fs::read_to_string(&files[0]).unwrap().trim_end(), long_words());
    assert_eq!(ask(&place, &second, &session.oracle.base_url(), "what is X").await, "X = 5");
    // One that does not name them has none.
    assert_eq!(place.files_with(&format!("{}/", early.id)), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn calls_that_a_cut_leaves_open_are_closed() {
    let place = Place::new();
    let session = record(&place).await;
    let entries = place.entries(&session.native);
    let call = |id: &str| {
        let is_call = |entry: &&Value| entry["message"]["content"][0]["id"] == id;
        entries.iter().find(is_call).unwrap()["uuid"].as_str().unwrap()
    };
    let (copy, _) = place.fork(&session.native, call("toolu_b"));
    session.oracle.clear();
    let answer = ask(&place, &copy, &session.oracle.base_url(), "what is X").await;

    assert_eq!(answer.lines().last(), Some("X = 5"));
    let request = session.oracle.requests().pop().unwrap().json();
    for id in ["toolu_a", "toolu_b"] {
        let blocks =
            request["messages"].as_array().unwrap().iter().filter_map(|m| m["content"].as_array()).flatten();
        let results: Vec<_> = blocks.filter(|block| block["tool_use_id"] == id).collect();
        assert_eq!(results.len(), 1, "{results:?}");
        assert!(results[0]["content"].to_string().contains("the conversation was cut here"), "{results:?}");
    }
}

#[tokio::test]
async fn ten_copies_at_once_are_ten_whole_copies() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, [_, six]) = short(&place, &oracle).await;
    let (source, from) = (place.text(&native), place.transcripts().path(&native));

    let copies: Vec<_> = std::thread::scope(|scope| {
        let copies: Vec<_> = (0..10).map(|_| scope.spawn(|| place.fork(&native, &six).0)).collect();
        copies.into_iter().map(|copy| copy.join().unwrap()).collect()
    });

    let lines = |native: &Native| sdk::comparable(place.lines(native), &source);
    for copy in &copies {
        assert_eq!(lines(copy), lines(&copies[0]));
        assert_eq!(place.transcripts().path(copy).parent(), from.parent());
    }
    assert_eq!(place.text(&native), source);
    assert_eq!(ask(&place, &copies[9], &oracle.base_url(), "what is X").await, "X = 6");
}

#[tokio::test]
async fn what_cannot_be_copied_leaves_nothing() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, [_, six]) = short(&place, &oracle).await;
    let before = place.files_with("");
    let fork = |source: &Native, at: &str, into: &Native| {
        let fork = Fork { source: source.clone(), at: at.to_owned(), into: into.clone(), title: None };
        match place.transcripts().fork(&fork) {
            Err(
                EngineError::ForkFailed(reason)
                | EngineError::Behind(reason)
                | EngineError::ResumeDropped(reason),
            ) => reason,
            other => panic!("{other:?}"),
        }
    };

    let (unknown, nobody) = (new_id(), place.session());
    assert_eq!(fork(&native, &unknown, &place.session()), format!("{} has no message {unknown}", native.id));
    assert_eq!(fork(&nobody, &six, &place.session()), format!("there is no transcript of {}", nobody.id));
    fork(&native, &six, &native);
    fork(&native, &six, &place.named("../escaped"));
    // The folder of this directory cannot be created.
    let blocked = Native { cwd: "/nowhere".into(), ..place.session() };
    let folder = place.transcripts().path(&blocked).parent().unwrap().to_owned();
    fs::write(&folder, "a file").unwrap();
    fork(&native, &six, &blocked);
    fs::remove_file(folder).unwrap();

    assert_eq!(place.files_with(""), before);
    assert_eq!(ask(&place, &native, &oracle.base_url(), "what is X").await, "X = 6");
}
