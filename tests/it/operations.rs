//! What operators and dashboards read: jobs, queues, workers, agents, health, documentation.

use serde_json::{Value, json};

use crate::support::{Deployment, Kind, on, text};

on!(jobs_are_listed_by_what_is_asked: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn jobs_are_listed_by_what_is_asked(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let done = client.chat(None, "say hi").await.json();
    client.ask(json!({"message": "fail 400"})).await;
    let (session, _events) = client.at_work().await;
    let injected = text(&client.chat_async(Some(&session), "say later").await["jobId"]);
    let running = text(&client.items(&format!("/jobs?sessionId={session}&kind=chat")).await[0]["id"]);
    let list = async |query: &str| {
        let items = other.items(&format!("/jobs?{query}")).await;
        items.iter().map(|job| text(&job["id"])).collect::<Vec<_>>()
    };

    let all = list("").await;
    assert_eq!(all.len(), 4);
    assert_eq!((&all[0], &all[1], all[3].as_str()), (&injected, &running, done["jobId"].as_str().unwrap()));
    assert_eq!(list("state=pending").await, [&*injected]);
    assert_eq!(list("state=claimed").await, [&*running]);
    assert_eq!(list("state=failed").await, [all[2].clone()]);
    assert_eq!(list("state=succeeded").await, [all[3].clone()]);
    assert_eq!(list("kind=inject").await, [&*injected]);
    assert_eq!(list(&format!("sessionId={session}")).await, all[..2]);
    let page = other.get("/jobs?limit=3").await.json();
    assert_eq!(list(&format!("limit=3&cursor={}", text(&page["nextCursor"]))).await, all[3..]);

    let job = other.get(&format!("/jobs/{running}")).await.json();
    assert_eq!((&job["attempt"], &job["agent"], &job["kind"]), (&json!(1), &json!("oracle"), &json!("chat")));
    assert!(job["ranMs"].is_u64() && job["workerId"].is_string() && job["endedAt"].is_null(), "{job}");
    let queues = other.items("/queues").await;
    let of = |name: &str| queues.iter().find(|queue| queue["name"] == name).expect(name);
    assert_eq!(queues.len(), 3);
    assert_eq!((&of("chat")["running"], &of("chat")["depth"]), (&json!(1), &json!(0)));
    assert_eq!((&of("chat")["endedLastMinute"], &of("chat")["failedLastMinute"]), (&json!(2), &json!(1)));
    assert_eq!((&of("inject")["running"], &of("inject")["depth"]), (&json!(0), &json!(1)));
    assert!(of("inject")["ageMs"].is_u64() && of("inject")["oldestAt"].is_string());
    assert_eq!(of("maintenance")["depth"], 0);
    deployment.oracle.hurry();
    deployment.end().await;
}

on!(workers_and_agents_say_what_they_can_do: Embedded, Distributed);
async fn workers_and_agents_say_what_they_can_do(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, _events) = client.at_work().await;

    let process = deployment.worker_of(&session).await.pid();
    let workers = other.items("/workers").await;
    assert_eq!(workers.len(), if kind == Kind::Distributed { 2 } else { 1 });
    for worker in &workers {
        assert_eq!((&worker["slots"], &worker["engines"]), (&json!(8), &json!(["openai"])));
        assert_eq!(worker["stopping"], false);
        let leases = worker["leases"].as_array().unwrap();
        assert_eq!(leases.len(), usize::from(worker["pid"] == process), "{worker}");
        for lease in leases {
            assert_eq!((&lease["sessionId"], &lease["cancelTurnId"]), (&json!(session), &Value::Null));
            assert_eq!(lease["turnId"], client.session(&session).await["activeTurnId"]);
        }
    }
    let agents = other.items("/agents").await;
    let named: Vec<_> =
        agents.iter().map(|agent| (text(&agent["name"]), agent["available"] == true)).collect();
    let all = [
        "asking",
        "brittle",
        "foreman",
        "forgetful",
        "frugal",
        "hasty",
        "limited",
        "manager",
        "oracle",
        "priced",
        "tooled",
    ];
    assert_eq!(named, all.map(|name| (name.to_owned(), true)));
    assert_eq!((&agents[3]["engine"], &agents[3]["model"]), (&json!("openai"), &json!("oracle")));
    assert_eq!(client.get("/healthz").await.status, 200);
    let ready = client.get("/readyz").await;
    assert_eq!(ready.status, 200, "{}", ready.body);
    deployment.oracle.hurry();
    deployment.end().await;
}

on!(the_documentation_is_served_from_here: Embedded, Distributed);
async fn the_documentation_is_served_from_here(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.other();

    let document = client.get("/openapi.json").await.json();
    for (path, method) in
        [("/agents/{agent}/chat", "post"), ("/sessions/{id}", "delete"), ("/jobs/{id}", "get")]
    {
        assert!(document["paths"][path][method].is_object(), "{method} {path}");
    }
    let page = client.get("/docs").await;
    assert_eq!(page.status, 200);
    let mut files = Vec::new();
    for attribute in ["src=\"", "href=\""] {
        files.extend(page.body.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()));
    }
    assert!(files.len() >= 4, "{}", page.body);
    for file in files {
        assert!(!file.contains("//"), "a foreign host: {file}");
        let served = client.get(&format!("/docs/{}", file.trim_start_matches("./"))).await;
        assert_eq!(served.status, 200, "{file}");
        if file.ends_with("initializer.js") {
            assert!(served.body.contains("/openapi.json"), "{}", served.body);
            assert!(!served.body.contains("http:") && !served.body.contains("https:"), "{}", served.body);
        }
    }
    assert_eq!(client.get("/").await.json()["name"], "roundhouse");
    let problem = client.get("/problems/SESSION_BUSY").await;
    assert!(problem.status == 200 && problem.body.contains("SESSION_BUSY"), "{}", problem.body);
    deployment.end().await;
}
