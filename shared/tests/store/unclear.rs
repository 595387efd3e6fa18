//! Commits of which nobody knows whether they happened: the connection is cut after the commit and before its reply.

use std::time::Duration;

use roundhouse_shared::store::{Admission, Idempotency, Store, StoreError};

use crate::proxy::Proxy;
use crate::support::*;

/// A store whose connections go through a proxy.
async fn through_a_proxy(db: &Database) -> (Proxy, Store) {
    let proxy = Proxy::to(&db.address()).await;
    let store = db.connect_through(&proxy).await;
    // Connected before anything is to be lost.
    store.ping().await.unwrap();
    (proxy, store)
}

/// Does something again and again, as a run does, while the database seems to be away.
async fn persist<T, F: Future<Output = Result<T, StoreError>>>(mut act: impl FnMut() -> F) -> T {
    loop {
        match act().await {
            Err(error) if error.is_outage() => tokio::time::sleep(Duration::from_millis(10)).await,
            other => return other.unwrap(),
        }
    }
}

on_postgres!(a_key_admits_a_message_once_however_often_its_commit_is_unclear,);

async fn a_key_admits_a_message_once_however_often_its_commit_is_unclear(db: &Database) {
    let (proxy, store) = through_a_proxy(db).await;
    let session = session(&db.store).await;
    let idempotency = Some(Idempotency { key: "once".to_owned(), hash: "h".to_owned() });
    let admission = Admission { idempotency, ..message(session, "hello") };
    proxy.lose_reply(b"", b"COMMIT");
    let first = store.admit(&admission).await;
    assert!(first.is_err_and(|error| error.is_outage()));
    let admitted = persist(|| store.admit(&admission)).await;
    assert_eq!((admitted.job, admitted.message), (admission.job, None));
    assert_eq!(db.number("SELECT count(*) FROM messages").await, 1);
}
