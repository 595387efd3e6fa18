//! Postgres behind PgBouncer in transaction mode, where a connection belongs to a client for a transaction only.

use futures::future::join_all;
use serde_json::json;

use crate::support::{Deployment, Kind, Options, PGBOUNCER_SERVERS, on, text};

on!(all_goes_on_behind_pgbouncer: EmbeddedPostgres, Distributed);
async fn all_goes_on_behind_pgbouncer(kind: Kind) {
    let deployment = Deployment::with(kind, Options { pgbouncer: true, ..Options::default() }).await;
    let (client, other) = (deployment.client(), deployment.other());

    let session = client.counted_to_eleven("oracle").await;
    let fork = client.fork_at(&session, "X = 6").await;
    assert_eq!((other.x(&fork).await, client.x(&session).await), ("X = 6".to_owned(), "X = 11".to_owned()));
    client.trim_at(&session, "X = 6").await;
    assert_eq!(other.x(&session).await, "X = 6");

    // More at once than there are connections to Postgres.
    let chats = (0..12).map(async |n| {
        let client = if n % 2 == 0 { client } else { other };
        client.chat(None, &format!("say {n}")).await.json()["content"].clone()
    });
    let answers: Vec<_> = (0..12).map(|n| json!(n.to_string())).collect();
    assert_eq!(join_all(chats).await, answers);

    let (working, mut events) = client.at_work().await;
    let cancelled = other.post(&format!("/sessions/{working}/cancel"), &json!({})).await.json();
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(events.until("done").await.data["cancelled"], true);

    let asking = client.session_with("asking").await;
    let caller = client.waiting_with("asking", &asking, "sleep 0 then say hi");
    client.have_it_run(&asking, "echo hi there").await;
    let answer = text(&caller.result().await["content"]);
    assert!(answer.ends_with("hi there"), "{answer}");

    let mut postgres = deployment.database().connection().await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let connections: i64 = sqlx::query_scalar(sql).fetch_one(&mut postgres).await.unwrap();
    assert!((1..=PGBOUNCER_SERVERS).contains(&connections), "{connections}");
    drop(postgres);
    deployment.end().await;
}
