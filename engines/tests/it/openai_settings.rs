//! Settings: prices, secrets, and what is refused at the start.

use roundhouse_engines::contract::{Capabilities, ContextKind, Engine, Intake, OpenSession};
use roundhouse_engines::openai::{OpenAi, Prices, Secret, Settings};
use serde_json::json;

use crate::script::{Server, nobody, says, status, streamed};
use crate::turns::{engine, settings, turn};

#[tokio::test]
async fn a_call_costs_what_its_tokens_cost_rounded_once() {
    let cases = [
        // 60 × 150 + 40 × 75 + 20 × 600 nano-dollars.
        (0.15, 0.6, Some(0.075), " for 24000"),
        (0.15, 0.6, None, " for 27000"),
        // 60 × 0.4 + 40 × 0.4 + 20 × 0.1 = 42: rounded token by token, it would be 0.
        (0.0004, 0.0001, None, " for 42"),
        // 60 × 0.005 + 40 × 0 + 20 × 0.01 = 0.5.
        (0.000_005, 0.000_01, Some(0.0), " for 1"),
        (0.0, 0.0, None, " for 0"),
    ];
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}});
    let chunk = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage});
    let server = Server::start([streamed([format!("data: {chunk}\n\ndata: [DONE]\n\n")])]).await;

    for (input, output, cache, cost) in cases {
        let mut settings = settings(&server.base_url);
        settings.prices = Some(Prices { input, output, cache });

        let events = turn(settings).await;

        let used = format!(" used 60+40 in, 20 out, 0 thinking{cost}");
        assert_eq!(events[1..], [format!("message \"hi\"{used}"), format!("done after 1{used}")]);
    }
}

#[tokio::test]
async fn usage_that_is_not_reported_has_no_cost() {
    let server = Server::start([says("hi")]).await;
    let mut settings = settings(&server.base_url);
    settings.prices = Some(Prices { input: 1.0, output: 1.0, cache: None });

    assert_eq!(turn(settings).await[1..], ["message \"hi\"", "done after 1"]);
}

#[tokio::test]
async fn a_secret_is_never_shown() {
    let echo = r#"{"error":{"message":"bad key sk-12345678 or header-secret"}}"#;
    let replies = [
        status(401, "", echo),
        streamed([format!("data: {echo}\n\n")]),
        streamed(["data: sk-12345678 header-secret\n\n"]),
        status(302, "location: http://x/?key=sk-12345678\r\n", ""),
    ];
    for reply in replies {
        let server = Server::start([reply]).await;
        let mut settings = settings(&server.base_url);
        settings.api_key = Some("sk-12345678".into());
        settings.extra_headers = [("api-key".to_owned(), Secret::from("header-secret"))].into();
        let shown = format!("{settings:?} {:?}", engine(settings.clone()));

        let events = turn(settings).await;

        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].contains("[secret]"), "{events:?}");
        for text in [&events[0], &shown] {
            assert!(!text.contains("sk-12345678") && !text.contains("header-secret"), "{text}");
        }
    }
}

#[tokio::test]
async fn wrong_settings_are_refused_at_the_start() {
    let good = settings("http://127.0.0.1:1/v1");
    let cases = [
        (Settings { base_url: String::new(), ..good.clone() }, "no base_url is configured"),
        (
            Settings { base_url: "ftp://x".into(), ..good.clone() },
            "base_url must begin with http:// or https://",
        ),
        (
            Settings { prices: Some(Prices { input: -1.0, output: 1.0, cache: None }), ..good.clone() },
            "-1 is not a price per million tokens",
        ),
        (
            Settings { extra_body: json!({"stream": false}).as_object().unwrap().clone(), ..good.clone() },
            "extra_body may not set \"stream\"",
        ),
        (
            Settings { api_key: Some("two\nlines".into()), ..good.clone() },
            "the API key has characters that no header can carry",
        ),
    ];
    for (settings, reason) in cases {
        let error = OpenAi::new(settings).unwrap_err();
        assert_eq!(error.to_string(), format!("the engine is unavailable: {reason}"));
    }

    let no_model = engine(Settings { model: String::new(), ..good });
    let spec = OpenSession {
        session: "s".into(),
        native_session: None,
        anchor: None,
        model: None,
        cwd: "/".into(),
        owner: None,
        above: Vec::new(),
    };
    let error = no_model.open(spec).await.err().unwrap();
    assert_eq!(error.to_string(), "the engine is unavailable: no model is configured");
}

#[tokio::test]
async fn availability_is_whether_the_server_answers_and_takes_the_key() {
    let there = Server::start([status(404, "", "")]).await;
    let locked = Server::start([status(401, "", "")]).await;
    let (_held, nobody) = nobody();

    let there = engine(settings(&there.base_url));
    let locked = engine(settings(&locked.base_url)).available().await.unwrap_err().to_string();
    let absent = engine(settings(&format!("http://{nobody}"))).available().await.unwrap_err().to_string();

    assert_eq!(there.available().await, Ok(()));
    assert_eq!(locked, "the engine is unavailable: 127.0.0.1 refuses the key: HTTP 401");
    assert!(absent.starts_with("the engine is unavailable: cannot reach 127.0.0.1"), "{absent}");
    assert_eq!(
        there.capabilities(),
        Capabilities { context: ContextKind::Replayed, works_on_files: false, intake: Intake::Boundaries }
    );
}
