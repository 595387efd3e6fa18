//! Where transcripts are, what else belongs to them, and what is left of them.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use roundhouse_engines::claude::transcript::{Entry, Seen};
use roundhouse_engines::contract::{EngineError, Fork, Native};
use roundhouse_oracle::Oracle;

use crate::cli::{Cli, ask};
use crate::place::{Place, new_id};
use crate::recorded::short;

#[tokio::test]
async fn a_transcript_is_where_the_cli_writes_it() {
    let oracle = Oracle::start().await.unwrap();
    let long = format!("{}/{}", "a b.c-d_é".repeat(20), "x".repeat(120));
    for name in ["plain", "dots.and spaces_é😀", &long] {
        let place = Place::with_cwd(name);
        // The way into it is a link, which the CLI does not name the folder after.
        let link = place.cwd.with_file_name("link");
        symlink(&place.cwd, &link).unwrap();
        let native = Native { id: new_id(), cwd: link };
        let expected = place.transcripts().path(&native);
        assert!(!place.transcripts().exists(&native));

        ask(&place, &native, &oracle.base_url(), "X = 5").await;

        assert!(expected.is_file(), "{:?}", place.files_with("jsonl"));
        assert!(place.transcripts().exists(&native));
    }
}

#[tokio::test]
async fn a_session_goes_on_from_another_directory() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, [five, _]) = short(&place, &oracle).await;
    let other = place.cwd.with_file_name("other");
    fs::create_dir(&other).unwrap();
    let moved = Native { cwd: other, ..native.clone() };

    assert_eq!(place.transcripts().path(&moved), place.transcripts().path(&native));
    assert_eq!(ask(&place, &moved, &oracle.base_url(), "what is X").await, "X = 6");
    // A copy is written where its own session will look for it.
    let into = Native { id: new_id(), cwd: moved.cwd.clone() };
    let fork = Fork { source: moved, at: five, into: into.clone(), title: Some("A title".to_owned()) };
    place.transcripts().fork(&fork).unwrap();
    let path = place.transcripts().path(&into);
    assert!(path.parent().unwrap().ends_with(path.parent().unwrap().file_name().unwrap()));
    assert_ne!(path.parent(), place.transcripts().path(&native).parent());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(place.text(&into).contains(r#""customTitle":"A title""#));
    assert_eq!(ask(&place, &into, &oracle.base_url(), "what is X").await, "X = 5");
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_nothing_else() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, [_, six]) = short(&place, &oracle).await;
    let (other, _) = place.fork(&native, &six);
    let history = place.config().join("file-history").join(&native.id);
    fs::create_dir_all(&history).unwrap();
    fs::write(history.join("1@v1"), "old").unwrap();
    let folder = place.transcripts().path(&native).with_extension("");
    fs::create_dir_all(folder.join("subagents")).unwrap();
    fs::write(folder.join("subagents/agent-1.jsonl"), "{}").unwrap();
    let half_written = place.transcripts().path(&native).with_extension("jsonl.partial");
    fs::write(half_written, "{").unwrap();

    place.transcripts().delete(&native).unwrap();

    assert_eq!(place.files_with(&native.id), Vec::<std::path::PathBuf>::new());
    assert!(!place.transcripts().exists(&native));
    for nothing in [&native, &place.session(), &place.named(""), &place.named("..")] {
        assert_eq!(place.transcripts().delete(nothing), Ok(()));
    }
    assert_eq!(ask(&place, &other, &oracle.base_url(), "what is X").await, "X = 6");
}

#[tokio::test]
async fn a_session_of_which_a_crash_left_no_entry_begins_anew() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let path = place.transcripts().path(&native);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let waiting =
        serde_json::json!({"type": "queue-operation", "operation": "enqueue", "sessionId": native.id});
    fs::write(path, format!("{waiting}\n")).unwrap();

    assert!(!place.transcripts().exists(&native));
    place.transcripts().delete(&native).unwrap();

    assert_eq!(ask(&place, &native, &oracle.base_url(), "X = 5").await, "X = 5");
}

#[tokio::test]
async fn what_cannot_be_deleted_is_told() {
    let place = Place::new();
    let native = place.session();
    // A folder in the place of the transcript.
    fs::create_dir_all(place.transcripts().path(&native)).unwrap();
    let error = place.transcripts().delete(&native).unwrap_err();
    assert!(matches!(&error, EngineError::Unavailable(reason) if reason.contains(&native.id)), "{error:?}");
}

#[tokio::test]
async fn broken_lines_are_passed_over() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let turn = cli.turn("X = 5").await;
    cli.close().await;
    let path = place.transcripts().path(&native);
    let answered = |id: &str| match place.transcripts().find(&native, id).unwrap() {
        Seen::Answered(entries) => match &entries[..] {
            [Entry::Message(message)] => message.content.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let lines = fs::read(&path).unwrap();
    let strange = b"nonsense\n\n[1]\n\xff\xfe\n{\"type\":7,\"uuid\":8}\n{\"type\":\"user\",\"uuid\":\"u\",\"isSidechain\":true}\n";
    let with_strange = [&strange[..], &lines].concat();
    fs::write(&path, with_strange).unwrap();
    append(&path, br#"{"type":"user","uuid":"torn","parentUu"#);

    assert_eq!(answered(&turn.id), "X = 5");
    let (copy, _) = place.fork(&native, &turn.anchor);
    assert_eq!(ask(&place, &copy, &oracle.base_url(), "what is X").await, "X = 5");

    // The bound of a line. What was in it is not known, so there is no copy.
    let long = format!("{{\"type\":\"user\",\"uuid\":\"long\",\"text\":\"{}\"}}\n", "x".repeat(33 << 20));
    fs::write(&path, [long.as_bytes(), &lines].concat()).unwrap();
    assert_eq!(answered(&turn.id), "X = 5");
    let (at, into) = (turn.anchor, place.session());
    let fork = Fork { source: native.clone(), at, into: into.clone(), title: None };
    assert!(matches!(place.transcripts().fork(&fork), Err(EngineError::Behind(_))));
    assert!(!place.transcripts().exists(&into));
    assert_eq!(place.transcripts().check(&native, Some(&turn.id)), Ok(()), "the CLI reads it");
}

#[tokio::test]
async fn a_resumed_process_counts_on_from_the_saved_cost() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let saved = || place.transcripts().saved_cost(&native);
    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let first = cli.turn("X = 5").await.total_cost;
    cli.close().await;
    assert_eq!(saved(), Some(first));

    // What a killed process has spent is not saved.
    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let second = cli.turn("add 1 to x").await;
    assert!(second.total_cost > first);
    cli.kill().await;
    assert_eq!(saved(), Some(first));

    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let third = cli.turn("add 1 to x").await;
    cli.close().await;
    let cost = third.total_cost - first;
    assert!((0.0..first).contains(&cost) && cost > 0.0, "{cost}, {first}");
    assert_eq!(saved(), Some(third.total_cost));

    // A copy begins with nothing.
    let (copy, _) = place.fork(&native, &second.anchor);
    assert_eq!(place.transcripts().saved_cost(&copy), None);
    let mut cli = Cli::open(&place, &copy, &oracle.base_url());
    let of_copy = cli.turn("add 1 to x").await.total_cost;
    cli.close().await;
    assert!(of_copy < third.total_cost, "{of_copy}, {}", third.total_cost);
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}
