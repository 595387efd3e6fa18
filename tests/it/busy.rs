//! A message to a session at work: a part of what comes next, a turn of its own, the end of what runs, or refused.

use serde_json::{Value, json};

use crate::support::{COUNTED, Client, Deployment, Kind, LONG, newest, on, text, until};

on!(a_message_to_a_session_at_work_has_its_own_answer: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_message_to_a_session_at_work_has_its_own_answer(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let (session, first) = client.at_work().await;

    let hurry = async {
        open_jobs(client, &session, 2).await;
        deployment.oracle.hurry();
    };
    let (second, ()) = tokio::join!(deployment.other().chat(Some(&session), "say second"), hurry);

    let events = first.all().await;
    let first = &events.last().unwrap().data;
    assert_eq!((&first["content"], &first["injected"]), (&json!(COUNTED), &json!(false)));
    let strange: Vec<_> = events.iter().filter(|event| !event.data["jobId"].is_null()).collect();
    assert!(strange.iter().all(|event| event.data["jobId"] == first["jobId"]), "{strange:?}");
    assert_eq!(second.status, 200, "{}", second.body);
    let second = second.json();
    assert_eq!((&second["content"], &second["injected"]), (&json!("second"), &json!(true)));
    assert_ne!(first["turnId"], second["turnId"]);
    assert_eq!(deployment.other().ended(&text(&second["jobId"])).await["kind"], "inject");

    let arrived = [
        format!("user: {LONG}"),
        "user: say second".to_owned(),
        format!("assistant: {COUNTED}"),
        "assistant: second".to_owned(),
    ];
    assert_eq!(client.messages(&session).await, arrived);
    let context = deployment.oracle.requests()[1].json();
    let seen: Vec<_> = context["messages"].as_array().unwrap().iter().map(|m| text(&m["content"])).collect();
    assert_eq!(seen, [LONG, COUNTED, "say second"], "the order of consumption");
    deployment.end().await;
}

on!(messages_that_wait_are_joined_into_one_turn: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn messages_that_wait_are_joined_into_one_turn(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, first) = client.at_work().await;

    let a = other.chat_async(Some(&session), "say a").await;
    let b = client.stream(Some(&session), "say b").await;
    let hurry = async {
        open_jobs(client, &session, 4).await;
        deployment.oracle.hurry();
    };
    let (c, ()) = tokio::join!(other.chat(Some(&session), "say c"), hurry);

    assert_eq!(first.all().await.last().unwrap().data["content"], COUNTED);
    let c = c.json();
    assert_eq!(
        (&c["content"], &c["injected"], &c["iterations"]),
        (&json!("a\nb\nc"), &json!(true), &json!(1))
    );
    let a = other.ended(&text(&a["jobId"])).await["result"].clone();
    let events = b.all().await;
    let b = &events.last().unwrap().data;
    for answer in [&a, b] {
        for field in ["content", "injected", "turnId", "messageId", "tokenUsage", "cancelled"] {
            assert_eq!(answer[field], c[field], "{field}");
        }
    }
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    for once in ["job.accepted", "job.started", "injection.delivered", "message.completed", "done"] {
        assert_eq!(names.iter().filter(|name| **name == once).count(), 1, "{once}: {names:?}");
    }
    let delivered = &events.iter().find(|event| event.name == "injection.delivered").unwrap().data;
    assert_eq!(delivered["merged"], json!([a["jobId"], b["jobId"], c["jobId"]]));
    assert_eq!((&delivered["turnId"], &delivered["jobId"]), (&c["turnId"], &b["jobId"]));

    let requests = deployment.oracle.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(newest(&requests[1]), "say a\n\nsay b\n\nsay c");
    // Each caller is told of the turn's tokens; the session's sum has them once.
    let counted = client.session(&session).await["usage"]["output"].as_u64().unwrap();
    assert_eq!(counted, 12 + c["tokenUsage"]["output"].as_u64().unwrap());
    deployment.end().await;
}

on!(enqueued_messages_have_turns_of_their_own: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn enqueued_messages_have_turns_of_their_own(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let client = deployment.client();
    let (session, _first) = client.at_work().await;

    let mut jobs = Vec::new();
    for (text, on_busy) in [
        ("say a", "enqueue"),
        ("say b", "enqueue"),
        ("say c", "inject"),
        ("say d", "enqueue"),
        ("say e", "inject"),
        ("say f", "inject"),
    ] {
        jobs.push(later(deployment.other(), &session, text, on_busy).await);
    }
    deployment.oracle.hurry();

    let mut answers = Vec::new();
    for job in &jobs {
        let job = client.ended(job).await;
        answers.push((
            text(&job["kind"]),
            text(&job["result"]["content"]),
            job["result"]["injected"] == true,
        ));
    }
    let own = |content: &str| ("chat".to_owned(), content.to_owned(), false);
    let joined = |content: &str| ("inject".to_owned(), content.to_owned(), true);
    assert_eq!(answers, [own("a"), own("b"), joined("c"), own("d"), joined("e\nf"), joined("e\nf")]);
    let asked: Vec<_> = deployment.oracle.requests().iter().skip(1).map(newest).collect();
    assert_eq!(asked, ["say a", "say b", "say c", "say d", "say e\n\nsay f"]);
    deployment.end().await;
}

on!(an_interrupting_message_ends_what_runs: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn an_interrupting_message_ends_what_runs(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, first) = client.at_work().await;
    let injected = later(client, &session, "say injected", "inject").await;
    let enqueued = later(client, &session, "say enqueued", "enqueue").await;

    let body = json!({"message": "say now", "sessionId": session, "onBusy": "interrupt"});
    let answer = other.ask(body).await.json();

    assert_eq!(answer["content"], "now");
    assert_eq!((&answer["injected"], &answer["cancelled"]), (&json!(false), &json!(false)));
    let done = first.all().await.pop().unwrap();
    assert_eq!((done.name.as_str(), &done.data["cancelled"]), ("done", &json!(true)));
    assert_eq!(done.data["content"], "(target session cancelled)");
    let injected = client.ended(&injected).await;
    assert_eq!((&injected["state"], &injected["result"]["cancelled"]), (&json!("cancelled"), &json!(true)));
    // A turn of its own is none of what runs: it stays, and keeps its place.
    assert_eq!(client.ended(&enqueued).await["result"]["content"], "enqueued");
    let requests = deployment.oracle.requests();
    assert!(requests[0].client_gone);
    assert_eq!(requests.iter().skip(1).map(newest).collect::<Vec<_>>(), ["say enqueued", "say now"]);
    deployment.end().await;
}

on!(a_message_that_must_not_wait_is_refused: Embedded, EmbeddedPostgres, EmbeddedRedis, Distributed);
async fn a_message_that_must_not_wait_is_refused(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let (client, other) = (deployment.client(), deployment.other());
    let (session, _first) = client.at_work().await;
    let stored = client.items(&format!("/sessions/{session}/messages")).await;

    for accept in ["application/json", "text/event-stream"] {
        let send = async |on_busy: &str| {
            let body = json!({"message": "say no", "sessionId": session, "onBusy": on_busy});
            let request = other.request("POST", "/agents/oracle/chat").header("accept", accept);
            other.send(request.json(&body)).await
        };
        assert_eq!(send("reject").await.code(), "409 SESSION_BUSY");
        let unknown = send("wait").await;
        assert_eq!(unknown.code(), "422 INVALID_REQUEST");
        assert_eq!(unknown.problem()["fields"][0]["path"], "onBusy");
    }

    assert_eq!(client.items(&format!("/sessions/{session}/messages")).await, stored);
    assert_eq!(client.items(&format!("/jobs?sessionId={session}")).await.len(), 1);
    deployment.oracle.hurry();
    until("the session to be idle", async || {
        (client.session(&session).await["status"] == "idle").then_some(())
    })
    .await;
    // Idle, all four are the same.
    for on_busy in ["inject", "enqueue", "interrupt", "reject"] {
        let body = json!({"message": "say yes", "sessionId": session, "onBusy": on_busy});
        let answer = other.ask(body).await.json();
        assert_eq!((&answer["content"], &answer["injected"]), (&json!("yes"), &json!(false)), "{on_busy}");
    }
    deployment.end().await;
}

/// Sends a message whose answer is awaited elsewhere; returns the job.
async fn later(client: &Client, session: &str, message: &str, on_busy: &str) -> String {
    let body: Value = json!({"message": message, "sessionId": session, "onBusy": on_busy});
    let request = client.request("POST", "/agents/oracle/chat").header("prefer", "respond-async");
    let answer = client.send(request.json(&body)).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    text(&answer.json()["jobId"])
}

/// Waits until a session has so many jobs that have not ended.
async fn open_jobs(client: &Client, session: &str, expected: usize) {
    until("jobs to be admitted", async || {
        let jobs = client.items(&format!("/jobs?sessionId={session}")).await;
        let open = jobs.iter().filter(|job| job["endedAt"].is_null()).count();
        (open == expected).then_some(())
    })
    .await;
}
