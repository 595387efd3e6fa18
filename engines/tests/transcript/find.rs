//! Messages looked up in transcripts.

use roundhouse_engines::claude::transcript::{Entry, Seen};
use roundhouse_oracle::Oracle;
use tokio::net::TcpListener;

use crate::cli::{Cli, TOO_LONG};
use crate::model::{Model, shell, text};
use crate::place::{Place, new_id};
use crate::recorded::{record, short};

#[tokio::test]
async fn messages_are_found_with_what_came_after_them() {
    let place = Place::new();
    let session = record(&place).await;
    let find = |id: &str| place.transcripts().find(&session.native, id).unwrap();

    assert_eq!(find(&new_id()), Seen::Absent);
    let said = |seen: Seen| match seen {
        Seen::Answered(entries) => show(&entries),
        other => panic!("{other:?}"),
    };
    assert_eq!(said(find(&session.folded)), ["says X = 6"]);
    for id in &session.merged {
        assert_eq!(said(find(id)), ["says X = 7\nX = 9"]);
    }
    let both = said(find(&session.both.0));
    let calls = r#"says Both. calls Bash("sleep 0.2; echo a") calls Bash("echo b")"#;
    assert_eq!((both.len(), &*both[0], &*both[3]), (4, calls, "thinks Hm. says a and b"), "{both:?}");
    let mut results = both[1..3].to_vec();
    results.sort();
    assert_eq!(results, ["Bash did: a", "Bash did: b"]);
    let Seen::Answered(entries) = find(&session.both.0) else { unreachable!() };
    let Some(Entry::Message(last)) = entries.last() else { panic!("{entries:?}") };
    assert_eq!(last.anchor.as_ref(), Some(&session.both.1));
    assert_eq!((last.usage.input_tokens, last.usage.output_tokens), (7, 5));

    // The turns after them were answered, and not these.
    let Seen::Open(entries) = find(&session.interrupted) else { panic!("{:?}", find(&session.interrupted)) };
    let shown = show(&entries);
    assert_eq!(shown[0], r#"says  calls Bash("while [ ! -e never ]; do sleep 0.05; done")"#);
    assert!(shown[1].starts_with("Bash failed: The user doesn't want to proceed"), "{shown:?}");
    assert_eq!(shown.len(), 2);
}

#[tokio::test]
async fn a_failure_is_no_answer() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let native = place.session();
    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let failed = cli.turn("fail 400").await.id;
    let answered = cli.turn("say fine").await.id;
    cli.close().await;
    // Nor is the answer to another message.
    assert_eq!(place.transcripts().find(&native, &failed), Ok(Seen::Open(vec![])));
    let Ok(Seen::Answered(entries)) = place.transcripts().find(&native, &answered) else {
        panic!("no answer")
    };
    assert_eq!(show(&entries), ["says fine"]);
}

#[tokio::test]
async fn a_message_is_open_after_a_crash_and_answered_once_the_turn_has_gone_on() {
    let (place, oracle) = (Place::new(), Oracle::start().await.unwrap());
    let (native, _) = short(&place, &oracle).await;
    // The tool says that it runs once its call is on disk, and then runs for ever.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transcript = place.transcripts().path(&native);
    let on_disk = format!("until grep -q toolu_ever {}; do sleep 0.05; done", transcript.display());
    let runs = format!("exec 3<>/dev/tcp/127.0.0.1/{}; sleep 100000", listener.local_addr().unwrap().port());
    let done =
        format!("until grep -q '\"tool_use_id\":\"toolu_a\"' {}; do sleep 0.05; done", transcript.display());
    let model = Model::start([vec![
        text("Both."),
        shell("toolu_a", "echo a"),
        shell("toolu_ever", &format!("{on_disk}; {done}; {runs}")),
    ]])
    .await;
    let mut cli = Cli::open(&place, &native, &model.url);
    let id = cli.say("what is X").await;
    tokio::time::timeout(TOO_LONG, listener.accept()).await.expect("the tool runs in time").unwrap();
    cli.kill().await;

    let Seen::Open(entries) = place.transcripts().find(&native, &id).unwrap() else { panic!("not open") };
    let shown = show(&entries);
    assert!(shown[0].starts_with(r#"says Both. calls Bash("echo a") calls Bash("until grep"#), "{shown:?}");
    assert_eq!(shown[1..], ["Bash did: a"]);

    let mut cli = Cli::open(&place, &native, &oracle.base_url());
    let turn = cli.turn("go on").await;
    cli.close().await;
    let Seen::Answered(entries) = place.transcripts().find(&native, &id).unwrap() else {
        panic!("not answered")
    };
    let shown = show(&entries);
    assert!(shown[2].starts_with("Bash failed: [Tool call interrupted"), "{shown:?}");
    assert_eq!(shown[3..], [format!("says {}", turn.answer)]);
}

#[tokio::test]
async fn where_there_is_no_transcript_there_is_no_message() {
    let place = Place::new();
    for native in [place.session(), place.named("../../etc/passwd"), place.named("")] {
        assert!(!place.transcripts().exists(&native));
        assert_eq!(place.transcripts().find(&native, &new_id()), Ok(Seen::Absent));
        assert_eq!(place.transcripts().saved_cost(&native), None);
    }
}

fn show(entries: &[Entry]) -> Vec<String> {
    let show = |entry: &Entry| match entry {
        Entry::Message(message) => {
            let thinking = message.thinking.iter().map(|thinking| format!("thinks {thinking} "));
            let call = |call: &roundhouse_engines::contract::ToolCall| {
                let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
                format!(" calls {}({})", call.name, arguments["command"])
            };
            let calls = message.tool_calls.iter().map(call);
            thinking.chain([format!("says {}", message.content)]).chain(calls).collect()
        }
        Entry::Result { name, success, text, .. } => {
            let how = if *success { "did" } else { "failed" };
            format!("{} {how}: {text}", name.as_deref().unwrap_or("?"))
        }
    };
    entries.iter().map(show).collect()
}
