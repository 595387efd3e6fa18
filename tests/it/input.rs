//! Input that cannot be right: refused with a stable code that names the field, and nothing is stored.

use serde_json::{Value, json};

use crate::support::{Answer, Client, Deployment, Kind, Options, on, text};

const CHAT: &str = "/agents/oracle/chat";

/// What is sent, the status and code it is refused with, and the field that is named.
type Case = (Vec<u8>, &'static str, &'static str);

on!(a_message_that_cannot_be_is_refused: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_message_that_cannot_be_is_refused(kind: Kind) {
    let world = World::start(kind).await;
    let bodies: [(Value, &str, &str); 18] = [
        (json!({"message": ""}), "422 EMPTY_MESSAGE", "message"),
        (json!({"message": " \t\r\n\u{a0}\u{3000}"}), "422 EMPTY_MESSAGE", "message"),
        (json!({"message": "say \0"}), "422 INVALID_REQUEST", "message"),
        (json!({"message": 5}), "422 INVALID_REQUEST", "message"),
        (json!({"message": null}), "422 INVALID_REQUEST", "message"),
        (json!({}), "422 INVALID_REQUEST", "message"),
        (json!([]), "422 INVALID_REQUEST", "body"),
        (json!({"message": "say a", "mesage": "typo"}), "422 INVALID_REQUEST", "mesage"),
        (json!({"message": "say a", "onBusy": "wait"}), "422 INVALID_REQUEST", "onBusy"),
        (json!({"message": "say a", "onBusy": 1}), "422 INVALID_REQUEST", "onBusy"),
        (
            json!({"message": "say a", "cancelOnDisconnect": "yes"}),
            "422 INVALID_REQUEST",
            "cancelOnDisconnect",
        ),
        (json!({"message": "say a", "sessionId": "nonsense"}), "422 INVALID_REQUEST", "sessionId"),
        (json!({"message": "say a", "sessionId": world.priced}), "422 INVALID_REQUEST", "sessionId"),
        (json!({"message": "say a", "title": "\0"}), "422 INVALID_REQUEST", "title"),
        (json!({"message": "say a", "title": "t".repeat(201)}), "422 INVALID_REQUEST", "title"),
        (json!({"message": "say a", "model": " "}), "422 INVALID_REQUEST", "model"),
        (json!({"message": "say a", "metadata": {"k": ["\0"]}}), "422 INVALID_REQUEST", "metadata"),
        (
            json!({"message": "say a", "attachments": [{"name": "a"}]}),
            "422 INVALID_REQUEST",
            "attachments[0].mediaType",
        ),
    ];
    let mut cases: Vec<Case> =
        bodies.into_iter().map(|(body, code, field)| (body.to_string().into(), code, field)).collect();
    cases.extend([
        // Half of a surrogate pair is no text, and neither are bytes that are not UTF-8.
        (br#"{"message": "say \ud800"}"#.to_vec(), "400 INVALID_REQUEST", "message"),
        (b"{\"message\": \"say \xff\"}".to_vec(), "400 INVALID_REQUEST", "message"),
        (br#"{"message": "say a""#.to_vec(), "400 INVALID_REQUEST", ""),
        (br#"{"message": "say a"} and more"#.to_vec(), "400 INVALID_REQUEST", ""),
        (b"message=say+a".to_vec(), "400 INVALID_REQUEST", ""),
        (Vec::new(), "400 INVALID_REQUEST", ""),
        (json!({"message": "a".repeat(1 << 20)}).to_string().into(), "413 PAYLOAD_TOO_LARGE", ""),
    ]);

    for accept in ["application/json", "text/event-stream"] {
        for (body, code, field) in &cases {
            let request = world.client().request("POST", CHAT).header("accept", accept).body(body.clone());
            let answer = world.client().send(request.header("content-type", "application/json")).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            is_refused(&answer, code, field, &shown);
        }
    }
    world.end().await;
}

on!(a_working_directory_outside_the_roots_is_refused: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_working_directory_outside_the_roots_is_refused(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    std::fs::create_dir_all(root.join("inside")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
    std::os::unix::fs::symlink(root.join("inside"), root.join("in")).unwrap();
    let env = vec![("ROUNDHOUSE_WORKSPACE_ROOTS", root.display().to_string())];
    let world = World::with(kind, Options { env, ..Options::default() }).await;
    let client = world.client();
    let at = |path: &str| root.join(path).display().to_string();

    let outside = [at("out"), at("out/new"), at("file"), at("inside/../inside"), at("../root-not"), at("..")];
    let strange = ["inside", "./inside", "/", "/etc", "/proc/self/root", "", "~", "\0"].map(str::to_owned);
    for cwd in outside.into_iter().chain(strange) {
        let code = if cwd == "\0" { "422 INVALID_REQUEST" } else { "422 CWD_NOT_ALLOWED" };
        let chat = client.ask(json!({"message": "say a", "cwd": cwd})).await;
        is_refused(&chat, code, "cwd", &cwd);
        let created = client.post("/sessions", &json!({"agent": "oracle", "cwd": cwd})).await;
        is_refused(&created, code, "cwd", &cwd);
    }
    world.stored_nothing().await;
    for (cwd, resolved) in [("inside", "inside"), ("in", "inside"), ("new", "new")] {
        let created = client.post("/sessions", &json!({"agent": "oracle", "cwd": at(cwd)})).await;
        assert_eq!(created.json()["cwd"], at(resolved), "{}", created.body);
    }
    world.deployment.end().await;
}

on!(what_is_not_there_is_not_found: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn what_is_not_there_is_not_found(kind: Kind) {
    let world = World::start(kind).await;
    let client = world.client();
    let unknown = uuid::Uuid::now_v7();

    let chat = client.ask(json!({"message": "say a", "sessionId": unknown})).await;
    is_refused(&chat, "404 SESSION_NOT_FOUND", "", "chat");
    let body = json!({"message": "say a"});
    is_refused(&client.post("/agents/nobody/chat", &body).await, "404 AGENT_NOT_FOUND", "", "agent");
    let body = json!({"agent": "nobody"});
    is_refused(&client.post("/sessions", &body).await, "404 AGENT_NOT_FOUND", "", "agent");
    let session = &world.session;
    for (method, path, code, field) in [
        ("GET", format!("/sessions/{unknown}"), "404 SESSION_NOT_FOUND", ""),
        ("DELETE", format!("/sessions/{unknown}"), "404 SESSION_NOT_FOUND", ""),
        ("DELETE", format!("/sessions/{unknown}?force=true"), "404 SESSION_NOT_FOUND", ""),
        ("GET", format!("/sessions/{unknown}/messages"), "404 SESSION_NOT_FOUND", ""),
        ("POST", format!("/sessions/{unknown}/cancel"), "404 SESSION_NOT_FOUND", ""),
        ("GET", format!("/jobs/{unknown}"), "404 JOB_NOT_FOUND", ""),
        ("POST", format!("/jobs/{unknown}/cancel"), "404 JOB_NOT_FOUND", ""),
        ("GET", "/nowhere".to_owned(), "404 NOT_FOUND", ""),
        ("PUT", format!("/sessions/{session}"), "405 METHOD_NOT_ALLOWED", ""),
        ("GET", CHAT.to_owned(), "405 METHOD_NOT_ALLOWED", ""),
        ("GET", "/sessions/nonsense".to_owned(), "400 INVALID_REQUEST", "id"),
        ("GET", "/sessions/%00".to_owned(), "400 INVALID_REQUEST", "id"),
        ("GET", "/jobs/1".to_owned(), "400 INVALID_REQUEST", "id"),
        ("GET", "/sessions?limit=0".to_owned(), "400 INVALID_REQUEST", "limit"),
        ("GET", "/sessions?limit=201".to_owned(), "400 INVALID_REQUEST", "limit"),
        ("GET", "/sessions?limit=many".to_owned(), "400 INVALID_REQUEST", "limit"),
        ("GET", "/sessions?status=busy".to_owned(), "400 INVALID_REQUEST", "status"),
        ("GET", "/sessions?cursor=x".to_owned(), "400 INVALID_REQUEST", "cursor"),
        ("GET", "/sessions?agent=%00".to_owned(), "400 INVALID_REQUEST", ""),
        ("GET", "/jobs?state=done".to_owned(), "400 INVALID_REQUEST", "state"),
        ("GET", "/jobs?sessionId=x".to_owned(), "400 INVALID_REQUEST", "sessionId"),
        ("GET", "/jobs?cursor=x".to_owned(), "400 INVALID_REQUEST", "cursor"),
        ("GET", format!("/sessions/{session}/messages?after=x"), "400 INVALID_REQUEST", "after"),
        ("GET", format!("/sessions/{session}/messages?limit=-1"), "400 INVALID_REQUEST", "limit"),
        ("DELETE", format!("/sessions/{session}?force=perhaps"), "400 INVALID_REQUEST", "force"),
    ] {
        let answer = client.send(client.request(method, &path)).await;
        is_refused(&answer, code, field, &format!("{method} {path}"));
    }
    let path = format!("/sessions/{session}");
    for (body, field) in [
        (json!({"title": 5}), "title"),
        (json!({"archived": "yes"}), "archived"),
        (json!({"agent": "priced"}), "agent"),
        (json!({"metadata": []}), "metadata"),
    ] {
        let answer = client.send(client.request("PATCH", &path).json(&body)).await;
        is_refused(&answer, "422 INVALID_REQUEST", field, &body.to_string());
    }
    world.end().await;
}

on!(a_head_that_cannot_be_is_refused: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_head_that_cannot_be_is_refused(kind: Kind) {
    let world = World::start(kind).await;
    let client = world.client();
    let host = client.url.trim_start_matches("http://");
    let long = "k".repeat(201);
    for (name, value, code, field) in [
        ("content-type", "text/plain", "415 UNSUPPORTED_MEDIA_TYPE", ""),
        ("content-type", "application/x-www-form-urlencoded", "415 UNSUPPORTED_MEDIA_TYPE", ""),
        ("host", "evil.example", "403 FORBIDDEN", ""),
        ("host", "127.0.0.1.nip.io:80", "403 FORBIDDEN", ""),
        ("origin", "http://evil.example", "403 FORBIDDEN", ""),
        ("origin", "null", "403 FORBIDDEN", ""),
        ("idempotency-key", "", "400 INVALID_REQUEST", "Idempotency-Key"),
        ("idempotency-key", "a b", "400 INVALID_REQUEST", "Idempotency-Key"),
        ("idempotency-key", &long, "400 INVALID_REQUEST", "Idempotency-Key"),
    ] {
        let body = json!({"message": "say a"}).to_string();
        let request = client.request("POST", CHAT).body(body);
        let request =
            if name == "content-type" { request } else { request.header("content-type", "application/json") };
        is_refused(&client.send(request.header(name, value)).await, code, field, &format!("{name}: {value}"));
    }
    world.stored_nothing().await;
    // A page of this host is no stranger.
    let request = client.request("POST", CHAT).header("origin", format!("http://{host}"));
    assert_eq!(client.send(request.json(&json!({"message": "say a"}))).await.status, 200);
    world.deployment.end().await;
}

/// A deployment with a little in it.
struct World {
    deployment: Deployment,
    session: String,
    /// A session of another agent.
    priced: String,
    stored: Value,
}

impl World {
    async fn start(kind: Kind) -> Self {
        Self::with(kind, Options::default()).await
    }

    async fn with(kind: Kind, options: Options) -> Self {
        let deployment = Deployment::with(kind, options).await;
        let client = deployment.client();
        let session = text(&client.chat(None, "X = 1").await.json()["sessionId"]);
        let priced = client.post("/agents/priced/chat", &json!({"message": "X = 2"})).await;
        let priced = text(&priced.json()["sessionId"]);
        let mut world = Self { deployment, session, priced, stored: Value::Null };
        world.stored = world.all().await;
        world
    }

    fn client(&self) -> &Client {
        self.deployment.client()
    }

    /// All that is stored.
    async fn all(&self) -> Value {
        let client = self.deployment.other();
        let mut all = vec![client.items("/sessions").await];
        for session in [&self.session, &self.priced] {
            all.push(client.items(&format!("/sessions/{session}/messages")).await);
        }
        let mut jobs = client.items("/jobs").await;
        jobs.sort_by_key(|job| text(&job["id"]));
        all.push(jobs);
        json!(all)
    }

    async fn stored_nothing(&self) {
        assert_eq!(self.all().await, self.stored);
        assert_eq!(self.deployment.oracle.requests().len(), 2);
    }

    async fn end(self) {
        self.stored_nothing().await;
        self.deployment.end().await;
    }
}

/// The answer is a problem with this code, and names this field.
fn is_refused(answer: &Answer, code: &str, field: &str, sent: &str) {
    assert!(answer.headers.contains_key("content-type"), "{sent}: {} {}", answer.status, answer.body);
    assert_eq!(answer.code(), code, "{sent}: {}", answer.body);
    let problem = answer.problem();
    assert!(problem["title"].is_string() && problem["instance"].is_string(), "{sent}: {}", answer.body);
    if !field.is_empty() {
        assert_eq!(problem["fields"][0]["path"], field, "{sent}: {}", answer.body);
        assert!(problem["fields"][0]["message"].as_str().is_some_and(|why| !why.is_empty()), "{sent}");
    }
}
