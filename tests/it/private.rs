//! What others on the host may read, and what is shown of secrets.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::{Deployment, Kind, Options, on};

on!(what_a_server_stores_is_its_users_alone: Embedded);
async fn what_a_server_stores_is_its_users_alone(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let session = deployment.client().session_with("tooled").await;
    deployment.client().says("tooled", &session, "sleep 0 then say hi").await;

    let mut seen = Vec::new();
    let mut left = vec![deployment.data_dir()];
    while let Some(path) = left.pop() {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        if path.is_dir() {
            left.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
        }
        seen.push(path);
    }
    assert!(seen.iter().any(|path| path.ends_with("roundhouse.db")), "{seen:?}");
    deployment.end().await;
}

on!(a_key_that_was_pasted_in_place_of_its_name_is_not_shown: Embedded);
async fn a_key_that_was_pasted_in_place_of_its_name_is_not_shown(kind: Kind) {
    let agents = "[agents.pasted]\nengine = 'openai'\nbase_url = 'http://127.0.0.1:9/v1'\nmodel = 'm'\n\
                  api_key_env = 'sk_hunter2'\n";
    let deployment =
        Deployment::with(kind, Options { agents: agents.to_owned(), ..Options::default() }).await;
    let client = deployment.client();

    let listed = client.send(client.request("GET", "/agents")).await;
    let chat = client.chat_with("pasted", None, "say hi").await;

    assert!(listed.body.contains("pasted") && !listed.body.contains("hunter2"), "{}", listed.body);
    assert!(!chat.body.contains("hunter2"), "{}", chat.body);
    deployment.end().await;
}

on!(a_model_that_is_no_model_is_refused: Embedded);
async fn a_model_that_is_no_model_is_refused(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let session = client.session_with("oracle").await;
    for model in ["--dangerously-skip-permissions", " -p", "a\nb", "a\u{1b}[2J", "\u{7f}"] {
        for refused in [
            client.post("/sessions", &json!({"agent": "oracle", "model": model})).await,
            client.post("/agents/oracle/chat", &json!({"message": "say a", "model": model})).await,
            client
                .send(client.request("PATCH", &format!("/sessions/{session}")).json(&json!({"model": model})))
                .await,
        ] {
            assert_eq!(refused.code(), "422 INVALID_REQUEST", "{model:?}: {}", refused.body);
            assert_eq!(refused.problem()["fields"][0]["path"], "model", "{model:?}");
        }
    }
    deployment.end().await;
}

on!(http2_without_a_host_header_is_checked_by_its_authority: Embedded);
async fn http2_without_a_host_header_is_checked_by_its_authority(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let url: reqwest::Url = deployment.client().url.parse().unwrap();
    let address = url.socket_addrs(|| None).unwrap()[0];
    let http2 =
        reqwest::Client::builder().http2_prior_knowledge().resolve("evil.example", address).build().unwrap();

    let own = http2.get(url.join("/healthz").unwrap()).send().await.unwrap();
    let foreign = http2.get(format!("http://evil.example:{}/sessions", address.port())).send().await.unwrap();

    assert_eq!((own.version(), own.status().as_u16()), (reqwest::Version::HTTP_2, 200));
    assert_eq!(foreign.status().as_u16(), 403);
    deployment.end().await;
}
