//! Tokens and costs: what the provider counted, turn by turn.

use roundhouse_oracle::RecordedRequest;
use serde_json::{Value, json};

use crate::script::{Server, says, status, using};
use crate::support::{Deployment, Kind, Options, agent, newest, on, text};

on!(a_turn_says_what_it_used_and_the_session_sums_it: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_turn_says_what_it_used_and_the_session_sums_it(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let mut session = None;
    let mut sum = [0; 4];

    for message in ["X = 5", "add 1 to x then count to 7", "what is x"] {
        let body = json!({"message": message, "sessionId": session});
        let events =
            client.events(client.request("POST", "/agents/priced/chat").json(&body)).await.all().await;
        let done = &events.last().unwrap().data;
        session = Some(text(&done["sessionId"]));

        let requests = deployment.oracle.requests();
        let counted = counted(requests.iter().find(|request| newest(request) == message).unwrap());
        for (total, part) in sum.iter_mut().zip(counted) {
            *total += part;
        }
        assert_eq!(done["tokenUsage"], usage(counted), "{message}");
        let find = |name: &str| &events.iter().find(|event| event.name == name).unwrap().data;
        assert_eq!(find("turn.completed")["usage"], usage(counted), "{message}");
        let written = &find("message.completed")["message"];
        let of_message = json!({
            "input": written["inputTokens"], "output": written["outputTokens"],
            "cache": written["cacheTokens"], "cost": written["cost"],
        });
        assert_eq!(of_message, usage(counted), "{message}");
    }

    assert!(sum[1] > 0, "something came from the cache");
    let session = deployment.other().session(&session.unwrap()).await;
    assert_eq!(session["usage"], usage(sum));
    deployment.end().await;
}

on!(a_cost_that_is_not_known_is_null: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_cost_that_is_not_known_is_null(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();

    let result = client.chat(None, "X = 5").await.json();

    let unknown = json!({"input": 3, "output": 3, "cache": 0, "cost": null});
    assert_eq!(result["tokenUsage"], unknown);
    assert_eq!(client.session(&text(&result["sessionId"])).await["usage"], unknown);
    // What failed has used nothing that anybody was told of.
    let body = json!({"message": "fail 400", "sessionId": result["sessionId"]});
    assert_eq!(client.ask(body).await.code(), "502 ENGINE_FAILED");
    assert_eq!(client.session(&text(&result["sessionId"])).await["usage"], unknown);
    deployment.end().await;
}

on!(what_a_model_call_used_for_nothing_counts: Embedded, Distributed);
async fn what_a_model_call_used_for_nothing_counts(kind: Kind) {
    let too_long = r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#;
    let replies =
        [using(says("noted"), 5, 1), status(400, "", too_long), using(says(" "), 1000, 77), says("well")];
    let server = Server::start(replies).await;
    let agents =
        agent("scripted", &server.base_url, "max_tries = 1\nprices = { input = 1.0, output = 10.0 }");
    let deployment = Deployment::with(kind, Options { agents, ..Options::default() }).await;
    let client = deployment.client();
    let session = text(&client.chat_with("scripted", None, "X = 5").await.json()["sessionId"]);

    let failed = client.chat_with("scripted", Some(&session), "go").await;

    // The summary is empty, and without one the conversation is too long.
    assert_eq!(failed.code(), "502 ENGINE_FAILED", "{}", failed.body);
    let sum = json!({"input": 1005, "output": 78, "cache": 0, "cost": 0.001_785});
    assert_eq!(deployment.other().session(&session).await["usage"], sum);
    deployment.end().await;
}

/// Input, cached input, output, and their price in billionths of a dollar: 1, 0.1 and 10 dollars per million.
fn counted(request: &RecordedRequest) -> [u64; 4] {
    let usage = request.usage.expect("usage");
    let input = usage.input_tokens - usage.cached_tokens;
    let nanos = input * 1000 + usage.cached_tokens * 100 + usage.output_tokens * 10_000;
    [input, usage.cached_tokens, usage.output_tokens, nanos]
}

#[expect(clippy::cast_precision_loss, reason = "a few tokens' worth")]
fn usage([input, cache, output, nanos]: [u64; 4]) -> Value {
    json!({"input": input, "output": output, "cache": cache, "cost": nanos as f64 / 1e9})
}
