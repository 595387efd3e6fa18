//! T3: processes that stand still in the middle of their work, and wake up when others have gone on without them.

use serde_json::{Value, json};
use sqlx::Connection;

use crate::support::{COUNTED, Deployment, Events, Kind, LONG, Options, note, on, until};

/// When a worker is frozen.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Before the model has said anything.
    Start,
    /// While it says nothing.
    Silence,
    /// While it speaks.
    Speech,
    /// While the rest of the answer comes all at once.
    Rush,
    /// As the turn ends, or just after: then nobody takes over.
    End,
}

impl Moment {
    const fn message(self) -> &'static str {
        match self {
            Self::Start | Self::Silence | Self::End => LONG,
            Self::Speech | Self::Rush => "slow 60 count to 2000",
        }
    }

    async fn come(self, deployment: &Deployment, events: &mut Events) {
        events.until("turn.started").await;
        if !matches!(self, Self::Start) {
            events.until_it_speaks(1).await;
        }
        if matches!(self, Self::Speech | Self::Rush) {
            for _ in 0..10 {
                events.until("message.delta").await;
            }
        }
        if matches!(self, Self::Rush | Self::End) {
            deployment.oracle.hurry();
        }
        if matches!(self, Self::End) {
            events.until("message.delta").await;
        }
    }
}

on!(a_worker_that_was_frozen_past_its_lease_wakes_up_silently: Distributed);
async fn a_worker_that_was_frozen_past_its_lease_wakes_up_silently(kind: Kind) {
    let options = Options { slots: 1, lease: "2s", ..Options::default() };
    let deployment = Deployment::with(kind, options).await;
    for moment in [Moment::Start, Moment::Silence, Moment::Speech, Moment::Rush, Moment::End] {
        let taken_over = freeze_at(moment, &deployment).await;
        note(&format!("{moment:?}: taken over: {taken_over}"));
        let may_be_over = matches!(moment, Moment::Rush | Moment::End);
        assert!(taken_over || may_be_over, "{moment:?}");
        both_workers_work(&deployment).await;
    }
    deployment.end().await;
}

/// Freezes the worker of a turn and wakes it up once the turn is answered; says whether another worker did that.
async fn freeze_at(moment: Moment, deployment: &Deployment) -> bool {
    let client = deployment.client();
    let session = client.new_session().await;
    let mut events = deployment.other().follow(&session, None).await;
    let job = client.chat_async(Some(&session), moment.message()).await["jobId"].as_str().unwrap().to_owned();
    let holder = deployment.worker_of(&session).await;
    moment.come(deployment, &mut events).await;
    holder.freeze().await;

    let job_path = format!("/jobs/{job}");
    let taken_over = until("the turn to end or to be taken over", async || {
        let job = client.get(&job_path).await.json();
        (job["attempt"] == 2).then_some(true).or((job["state"] == "succeeded").then_some(false))
    })
    .await;
    if taken_over {
        events.until_it_speaks(2).await;
        deployment.oracle.hurry();
    }
    let ended = client.ended(&job).await;
    let messages = client.items(&format!("/sessions/{session}/messages")).await;
    assert_eq!((ended["attempt"] == 2, messages.len()), (taken_over, 2), "{ended}");

    holder.thaw();
    if taken_over {
        holder.logged(&["lost the lease", &session]).await;
    }
    let next = deployment.other().chat(Some(&session), "say awake").await.json();
    let all = client.items(&format!("/sessions/{session}/messages")).await;
    assert_eq!((&next["content"], &all[..2]), (&json!("awake"), &messages[..]));
    assert_eq!(client.get(&job_path).await.json()["result"], ended["result"]);
    assert_eq!(client.session(&session).await["status"], "idle");
    // All that was published since, up to the end of the next turn.
    loop {
        let event = events.next().await.unwrap();
        let of_lost_run = event.data["turnId"] == ended["turnId"] && event.data["attempt"] == 1;
        assert!(!(taken_over && of_lost_run), "{event:?}");
        if event.name == "chat.response" && event.data["jobId"] == next["jobId"] {
            return taken_over;
        }
    }
}

/// Each worker has one slot: two turns at once need both.
async fn both_workers_work(deployment: &Deployment) {
    let client = deployment.client();
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let session = client.new_session().await;
        let mut events = client.follow(&session, None).await;
        let answer = deployment.other().chat_waiting(&session, LONG);
        events.until_it_speaks(1).await;
        sessions.push((deployment.holder(&session).await, answer));
    }
    assert_ne!(sessions[0].0, sessions[1].0);
    deployment.oracle.hurry();
    for (_, answer) in sessions {
        assert_eq!(answer.result().await["content"], COUNTED);
    }
}

/// Stands in the way of everything that wants the session.
struct Obstacle {
    transaction: sqlx::PgConnection,
    observer: sqlx::PgConnection,
}

impl Obstacle {
    async fn before(deployment: &Deployment, session: &str) -> Self {
        let mut transaction = deployment.database().connection().await;
        sqlx::query("BEGIN").execute(&mut transaction).await.unwrap();
        let lock = "SELECT id FROM sessions WHERE id = $1::uuid FOR UPDATE";
        sqlx::query(lock).bind(session).fetch_one(&mut transaction).await.unwrap();
        Self { transaction, observer: deployment.database().connection().await }
    }

    /// Waits until a transaction that begins by locking the session waits here.
    async fn is_met(&mut self) {
        loop {
            let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE'";
            if !sqlx::query(sql).fetch_all(&mut self.observer).await.unwrap().is_empty() {
                return;
            }
        }
    }

    async fn goes(mut self) {
        sqlx::query("COMMIT").execute(&mut self.transaction).await.unwrap();
        self.transaction.close().await.unwrap();
    }
}

on!(a_worker_frozen_in_a_transaction_keeps_nobody_from_the_session: Distributed);
async fn a_worker_frozen_in_a_transaction_keeps_nobody_from_the_session(kind: Kind) {
    let deployment = Deployment::with(kind, Options { lease: "4s", ..Options::default() }).await;
    let session = deployment.client().new_session().await;
    let mut events = deployment.client().follow(&session, None).await;
    let answer = deployment.other().chat_waiting(&session, LONG);
    events.until_it_speaks(1).await;
    let holder = deployment.worker_of(&session).await;

    let mut obstacle = Obstacle::before(&deployment, &session).await;
    deployment.oracle.hurry();
    obstacle.is_met().await;
    holder.freeze().await;
    obstacle.goes().await;

    events.until_it_speaks(2).await;
    deployment.oracle.hurry();
    let result = answer.result().await;
    holder.thaw();
    let job = deployment.client().ended(result["jobId"].as_str().unwrap()).await;
    assert_eq!((&job["result"], &job["attempt"]), (&result, &json!(2)));
    holder.logged(&["lost the lease", &session]).await;
    assert_eq!(deployment.client().messages(&session).await.len(), 2);
    deployment.end().await;
}

on!(an_api_frozen_in_a_transaction_keeps_nobody_from_the_session: Distributed);
async fn an_api_frozen_in_a_transaction_keeps_nobody_from_the_session(kind: Kind) {
    let deployment = Deployment::start(kind).await;
    let session = deployment.other().new_session().await;
    let mut events = deployment.other().follow(&session, None).await;
    let running = deployment.other().chat_waiting(&session, LONG);
    events.until_it_speaks(1).await;

    let mut obstacle = Obstacle::before(&deployment, &session).await;
    let stuck = deployment.client().chat_waiting(&session, "say stuck");
    obstacle.is_met().await;
    deployment.apis[0].freeze().await;
    obstacle.goes().await;

    let more = deployment.other().chat_waiting(&session, "say more");
    while events.until("chat.user_message").await.data["content"] != "say more" {}
    deployment.oracle.hurry();
    let results = [running.result().await, more.result().await];
    let contents: Vec<&Value> = results.iter().map(|result| &result["content"]).collect();
    assert_eq!(contents, [COUNTED, "more"]);
    deployment.apis[0].thaw();
    assert_eq!(stuck.answer().await.unwrap().code(), "503 STORE_UNAVAILABLE");
    assert_eq!(deployment.client().messages(&session).await.len(), 4);
    deployment.end().await;
}
