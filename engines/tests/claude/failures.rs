//! What goes wrong: each time one clear end, and a session that can be used again.

use std::time::Duration;

use roundhouse_engines::claude::{ClaudeCli, Settings};
use roundhouse_engines::contract::{Engine, EngineError, EngineEvent, Injected};
use roundhouse_engines::mcp::{self, Transport};
use roundhouse_engines::openai::Prices;
use serde_json::json;

use crate::fake::{self, Fake};
use crate::host::{Host, answer, input, message};

/// The error that a turn ends with; nothing comes after it.
async fn failure(host: &Host, settings: Settings, text: &str) -> EngineError {
    let mut session = host.open_with(settings, None).await;
    session.send(text).await;
    let events = session.rest().await;
    let more = tokio::time::timeout(Duration::from_millis(100), session.0.next()).await;
    assert!(more.is_err(), "one end is enough: {more:?}");
    session.close().await;
    match events.last() {
        Some(EngineEvent::Failed(error)) => error.clone(),
        other => panic!("the turn has not failed: {other:?}"),
    }
}

#[tokio::test]
async fn each_failure_of_the_provider_is_told_and_the_session_goes_on() {
    let host = Host::new().await;
    let settings = Settings { max_retries: 1, ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    for (status, retries) in [(400, false), (401, true), (429, true), (500, true), (529, true)] {
        session.send(&format!("fail {status}")).await;
        let events = session.rest().await;
        let Some(EngineEvent::Failed(EngineError::Provider { status: told, detail, .. })) = events.last()
        else {
            panic!("{status}: {events:?}")
        };
        assert_eq!(*told, Some(status), "{detail}");
        assert!(!detail.is_empty());
        let retried = events
            .iter()
            .any(|event| matches!(event, EngineEvent::Retry { status: Some(s), .. } if *s == status));
        assert_eq!(retried, retries, "{events:?}");
        assert!(!events.iter().any(|event| matches!(event, EngineEvent::MessageDone(_))), "{events:?}");
    }
    assert!(session.0.is_warm());
    assert_eq!(session.chat("say fine").await, "fine");
    assert_eq!(session.chat("fail 500 once\nsay twice").await, "twice");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_told() {
    let host = Host::new().await;
    let mut settings = Settings { max_retries: 1, ..host.settings() };
    settings.env.insert("ANTHROPIC_BASE_URL".to_owned(), "http://127.0.0.1:9".into());
    let error = failure(&host, settings, "say hi").await;
    assert!(
        matches!(&error, EngineError::Provider { status: None, detail, .. } if !detail.is_empty()),
        "{error}"
    );
}

#[tokio::test]
async fn a_program_that_is_missing_or_too_old_is_no_engine() {
    let host = Host::new().await;
    let with = |command: &str| {
        ClaudeCli::new(Settings { command: vec![command.to_owned()], ..host.settings() }).unwrap()
    };
    let reason = |error: Option<EngineError>| error.expect("unavailable").to_string();
    let missing = with("/nowhere/claude");
    assert!(reason(missing.available().await.err()).contains("/nowhere/claude was not found"));
    let mut session = missing.open(host.spec(None)).await.unwrap();
    assert!(reason(session.send(input("say hi")).await.err()).contains("/nowhere/claude was not found"));

    let old = host.path("old");
    std::fs::write(&old, "#!/bin/sh\necho '2.1.197 (Claude Code)'\n").unwrap();
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let old = reason(with(&old.display().to_string()).available().await.err());
    assert!(old.contains("2.1.197") && old.contains("2.1.332"), "{old}");
    assert!(reason(with("/bin/true").available().await.err()).contains("has not told a version"));

    assert_eq!(ClaudeCli::new(host.settings()).unwrap().available().await, Ok(()));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let host = Host::new().await;
    let mcp =
        mcp::Settings::new("a__b", Transport::Http { url: "http://127.0.0.1:1".into(), headers: [].into() });
    let cases = [
        (Settings { command: vec![], ..host.settings() }, "command"),
        (Settings { config_dir: "relative".into(), ..host.settings() }, "absolute"),
        (Settings { permission_mode: Some("dontAsk".into()), ..host.settings() }, "dontAsk"),
        (Settings { mcp: vec![mcp], ..host.settings() }, "a__b"),
        (
            Settings { prices: Some(Prices { input: -1.0, output: 1.0, cache: None }), ..host.settings() },
            "-1",
        ),
    ];
    for (settings, reason) in cases {
        let error = ClaudeCli::new(settings).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[tokio::test]
async fn limits_of_a_turn_end_it_and_not_the_session() {
    let host = Host::new().await;
    let settings = Settings { max_iterations: Some(1), ..host.settings() };
    let error = failure(&host, settings, "sleep 0 then say more").await;
    assert!(matches!(&error, EngineError::Limit(reason) if reason.contains("max_iterations")), "{error}");

    let settings = Settings { max_cost_nanos: Some(1), ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    session.send("sleep 20 then say more").await;
    let events = session.rest().await;
    let Some(EngineEvent::Failed(EngineError::Limit(reason))) = events.last() else { panic!("{events:?}") };
    assert!(reason.contains("its agent may spend 0.000000001 USD"), "{reason}");
    assert_eq!(session.chat("say after").await, "after");
}

#[tokio::test]
async fn an_exit_without_a_result_is_told_with_the_last_words() {
    let host = Host::new().await;
    let fake = Fake::new().begins().does("echo 'out of cheese' >&2; exit 3");
    let error = failure(&host, fake.settings(&host), "say hi").await;
    assert_eq!(
        error,
        EngineError::Died { status: "exit status: 3".to_owned(), stderr_tail: "out of cheese".to_owned() }
    );

    let fake = Fake::new().begins().says_text("panic: no json").does("kill -SEGV $$");
    let error = failure(&host, fake.settings(&host), "say hi").await;
    let EngineError::Died { status, stderr_tail } = error else { panic!("{error}") };
    assert!(status.contains("SIGSEGV") && stderr_tail.contains("panic: no json"), "{status} {stderr_tail}");
}

#[tokio::test]
async fn a_conversation_that_the_cli_does_not_take_is_lost_and_not_broken() {
    let host = Host::new().await;
    let error = "No conversation found with session ID: x";
    let fakes = [
        Fake::new().says(&json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [error]})),
        Fake::new().does(&format!("echo '{error}' >&2; exit 1")),
    ];
    for fake in fakes {
        let error = failure(&host, fake.settings(&host), "say hi").await;
        assert!(matches!(&error, EngineError::ResumeDropped(_)), "{error}");
    }
}

#[tokio::test]
async fn lines_that_nobody_knows_do_no_harm() {
    let host = Host::new().await;
    let fake = Fake::new()
        .says_text("no json")
        .says_text("")
        .says_text("[1, 2]")
        .says_text("{\"type\": 5}")
        .begins()
        .says(&json!({"type": "news", "what": {"ever": null}}))
        .says(&json!({"type": "system", "subtype": "news"}))
        .says(&json!({"type": "stream_event", "event": {"type": "news"}}))
        .says(&json!({"type": "assistant", "message": null}))
        .says(&json!({"type": "control_request", "request_id": "1", "request": {"subtype": "news"}}))
        .says(&json!({"type": "control_response", "response": null}))
        .says_text(r#"{"type":"assistant","uuid":"a","message":{"id":"m","content":[{"type":"text","text":"a\u0000b\ud800c"},{"type":"news"}],"usage":null}}"#)
        .ends()
        .listens();
    let mut session = host.open_with(fake.settings(&host), None).await;
    session.send("say hi").await;
    let events = session.rest().await;
    assert_eq!(answer(&events), "a\u{FFFD}b\u{FFFD}c");
    session.close().await;
}

#[tokio::test]
async fn a_line_of_20_mb_is_read_and_one_that_is_too_long_fails_the_turn_and_not_the_session() {
    let host = Host::new().await;
    let big = |megabytes: u32| {
        format!(
            r#"printf '{{"type":"user","parent_tool_use_id":null,"message":{{"content":[{{"type":"tool_result","tool_use_id":"t","content":"'; head -c {megabytes}000000 /dev/zero | tr '\0' x; printf '"}}]}}}}\n'"#
        )
    };
    let calls = json!({
        "type": "assistant", "uuid": "a", "message": {"id": "m1", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
    });
    let fake = Fake::new().begins().says(&calls).does(&big(20)).writes("read").ends().listens();
    let mut session = host.open_with(fake.settings(&host), None).await;
    session.send("say hi").await;
    let events = session.rest().await;
    assert_eq!(answer(&events), "read");
    let result = events.iter().find_map(|event| match event {
        EngineEvent::ToolDone { result, .. } => Some(result.clone()),
        _ => None,
    });
    let result = result.expect("the tool's result");
    assert!(result.starts_with("xxx") && result.len() < 100_000, "{}", result.len());
    session.close().await;

    // The result itself is too long: then there is none.
    let result =
        r#"printf '{"type":"result","result":"'; head -c 40000000 /dev/zero | tr '\0' x; printf '"}\n'"#;
    let idle = json!({"type": "system", "subtype": "session_state_changed", "state": "idle"});
    let fake = Fake::new().begins().writes("hi").does(result).says(&idle).listens();
    let error = failure(&host, fake.settings(&host), "say hi").await;
    assert!(
        matches!(&error, EngineError::Provider { detail, .. } if detail.contains("no result")),
        "{error}"
    );
}

#[tokio::test]
async fn silence_ends_the_turn_and_the_process() {
    let host = Host::new().await;
    let fake = Fake::new().begins().does("exec sleep 3600");
    let settings = Settings { no_progress: Duration::from_millis(300), ..fake.settings(&host) };
    let mut session = host.open_with(settings, None).await;
    session.send("say hi").await;
    let events = session.rest().await;
    let limit = Duration::from_millis(300);
    assert!(
        matches!(
            events.last(),
            Some(EngineEvent::Failed(EngineError::NoProgress { after, last })) if *after == limit && !last.is_empty()
        ),
        "{events:?}"
    );
    assert_eq!(session.0.inject(message("say b")).await, Injected::NotNow);
    assert!(!session.0.is_warm());
}

#[tokio::test]
async fn a_tool_may_be_silent_for_longer() {
    let host = Host::new().await;
    let calls = json!({
        "type": "assistant", "uuid": "a", "message": {"id": "m1", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
    });
    let result = json!({
        "type": "user", "uuid": "b", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": "slept"}]},
    });
    let fake = Fake::new().begins().says(&calls).says(&fake::ask("t"));
    let fake = fake.does("read -r answer; sleep 7").says(&result).writes("hi").ends().listens();
    let settings = Settings { no_progress: Duration::from_secs(5), ..fake.settings(&host) };
    let mut session = host.open_with(settings, None).await;
    session.send("say hi").await;
    assert_eq!(answer(&session.rest().await), "hi");
    session.close().await;
}

#[tokio::test]
async fn a_real_cli_that_waits_in_silence_is_interrupted_and_can_be_used_again() {
    let host = Host::new().await;
    let settings = Settings { no_progress: Duration::from_secs(20), ..host.settings() };
    let mut session = host.open_with(settings, None).await;
    session.send("slow 3600\ncount to 3").await;
    let events = session.rest().await;
    assert!(matches!(events.last(), Some(EngineEvent::Failed(EngineError::NoProgress { .. }))), "{events:?}");
    assert_eq!(session.chat("say after").await, "after");
}

#[tokio::test]
async fn an_interrupt_that_is_not_heard_ends_the_process() {
    let host = Host::new().await;
    let fake = Fake::new().begins().does("exec sleep 3600");
    let mut session = host.open_with(fake.settings(&host), None).await;
    session.send("say hi").await;
    session.until(|event| matches!(event, EngineEvent::Delivered(_))).await;
    session.0.interrupt().await;
    let events = session.rest().await;
    assert!(matches!(events.last(), Some(EngineEvent::Interrupted)), "{events:?}");
    assert!(!session.0.is_warm());
}
