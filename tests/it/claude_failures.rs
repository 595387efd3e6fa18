//! What goes wrong with Claude Code: each time one clear end, and the session goes on.

use serde_json::{Value, json};

use crate::support::{
    Client, Deployment, Events, Kind, ORACLE, Options, SseEvent, claude, cli_agent, names_of, on, program,
    text,
};

/// The stream ends with one `error`, whose detail is returned with all events.
async fn failure(events: Events) -> (String, Vec<SseEvent>) {
    let events = events.all().await;
    let ends = names_of(&events, &["done", "error", "turn.completed", "turn.failed", "chat.response"]);
    assert_eq!(ends, ["turn.failed", "error"], "{events:?}");
    let error = events.last().unwrap().data.clone();
    assert_eq!((&error["code"], &error["status"]), (&json!("ENGINE_FAILED"), &json!(502)), "{error}");
    (text(&error["detail"]), events)
}

async fn agent(client: &Client, name: &str) -> Value {
    let agents = client.items("/agents").await;
    agents.into_iter().find(|agent| agent["name"] == name).expect("an agent")
}

on!(a_program_that_is_missing_or_too_old_is_no_agent: Embedded, Distributed);
async fn a_program_that_is_missing_or_too_old_is_no_agent(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nowhere").display().to_string();
    let old = program(dir.path(), "old", "2.1.197", "");
    let agents = cli_agent("missing", &missing, ORACLE, "") + &cli_agent("old", &old, ORACLE, "");
    let deployment = Deployment::with(kind, Options { agents, ..Options::default() }).await;
    for (name, reason) in [("missing", vec![&*missing, "was not found"]), ("old", vec!["2.1.197", "2.1.332"])]
    {
        for client in &deployment.clients {
            let listed = agent(client, name).await;
            assert_eq!((&listed["available"], &listed["engine"]), (&json!(false), &json!("claude-cli")));
            let said = text(&listed["reason"]);
            assert!(reason.iter().all(|word| said.contains(word)), "{said}");

            let refused = client.chat_with(name, None, "say hi").await;
            assert_eq!(refused.code(), "503 ENGINE_UNAVAILABLE");
            assert_eq!(refused.problem()["detail"], said);
        }
    }
    assert_eq!(deployment.client().chat(None, "say hi").await.json()["content"], "hi");
    deployment.end().await;
}

on!(a_provider_that_fails_is_told_and_the_session_goes_on: Embedded);
async fn a_provider_that_fails_is_told_and_the_session_goes_on(kind: Kind) {
    // Nobody listens there.
    let agents = cli_agent("lost", &claude(), "http://127.0.0.1:9", "");
    let deployment = Deployment::with(kind, Options { claude: true, agents, ..Options::default() }).await;
    let client = deployment.client();
    let session = client.session_with("claude").await;
    assert_eq!(client.says("claude", &session, "X = 5").await, "X = 5");
    for status in [401, 429, 500, 529] {
        let stream = client.stream_with("claude", Some(&session), &format!("fail {status}")).await;
        let (detail, events) = failure(stream).await;
        assert!(detail.contains(&status.to_string()), "{detail}");
        let retries: Vec<_> = events.iter().filter(|event| event.name == "engine.retry").collect();
        assert!(!retries.is_empty(), "{status}: {events:?}");
        for (n, retry) in retries.iter().enumerate() {
            assert_eq!((&retry.data["attempt"], &retry.data["status"]), (&json!(n + 1), &json!(status)));
            assert!(retry.data["delayMs"].is_u64(), "{retry:?}");
        }
        assert_eq!(client.session(&session).await["status"], "error");
    }
    assert!(client.says("claude", &session, "what is x").await.ends_with("X = 5"));
    assert_eq!(client.session(&session).await["status"], "idle");

    let stream = client.stream_with("claude", Some(&session), "fail 500 once, add 1 to x").await;
    let events = stream.all().await;
    assert_eq!(names_of(&events, &["engine.retry", "error", "done"]), ["engine.retry", "done"]);
    assert_eq!(events.last().unwrap().data["content"], "X = 6");

    let (detail, events) = failure(client.stream_with("lost", None, "say hi").await).await;
    assert!(detail.contains("provider failed") && !detail.contains("HTTP"), "{detail}");
    let retry = events.iter().find(|event| event.name == "engine.retry").expect("engine.retry");
    assert_eq!(retry.data["status"], Value::Null);
    deployment.end().await;
}

/// A program that is ready, and answers each message unless it is told something else by it.
const STRANGE: &str = r#"
say() { printf '%s\n' "${1//UUID/$uuid}"; }
while IFS= read -r line; do
  case "$line" in
    *'"initialize"'*)
      say '{"type":"control_response","response":{"subtype":"success","request_id":"initialize","response":{}}}' ;;
    *'"type":"user"'*)
      uuid=$(sed -E 's/.*"uuid":"([^"]*)".*/\1/' <<<"$line")
      say '{"type":"command_lifecycle","command_uuid":"UUID","state":"started"}'
      case "$line" in
        *'go away'*) echo 'out of cheese' >&2; exit 3 ;;
        *'fall over'*) echo 'panic: no JSON'; kill -SEGV $$ ;;
        *'be silent'*) exec sleep 3600 ;;
        *'be strange'*) say 'no JSON'; say '{"type":"news"}'; say '[1]'; say '' ;;
      esac
      say '{"type":"assistant","uuid":"a","message":{"id":"m","content":[{"type":"text","text":"hi"}],"usage":null}}'
      say '{"type":"result","subtype":"success","is_error":false,"result":"hi","num_turns":1,"usage":null,"user_message_uuids":["UUID"]}' ;;
  esac
done
"#;

on!(a_program_that_breaks_is_told_and_the_session_goes_on: Embedded, Distributed);
async fn a_program_that_breaks_is_told_and_the_session_goes_on(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let strange = program(dir.path(), "strange", "2.1.332", STRANGE);
    let env = vec![("ROUNDHOUSE_NO_PROGRESS", "5s".to_owned())];
    let agents = cli_agent("strange", &strange, ORACLE, "");
    let deployment = Deployment::with(kind, Options { env, agents, ..Options::default() }).await;
    let client = deployment.client();
    let session = client.session_with("strange").await;
    assert_eq!(client.says("strange", &session, "be strange").await, "hi");
    for (message, told) in [
        ("go away", "exit status: 3): out of cheese"),
        ("fall over", "SIGSEGV"),
        ("be silent", "no progress for 5s"),
    ] {
        let (detail, _) = failure(client.stream_with("strange", Some(&session), message).await).await;
        assert!(detail.contains(told), "{message}: {detail}");
        assert_eq!(client.session(&session).await["status"], "error");

        assert_eq!(
            deployment.other().chat_with("strange", Some(&session), "hello").await.json()["content"],
            "hi"
        );
        assert_eq!(client.session(&session).await["status"], "idle");
    }
    deployment.end().await;
}
