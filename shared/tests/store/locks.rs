//! Nobody waits for another in a circle: children that wake their parents, heartbeats, reapers and runs that broke off.

use roundhouse_shared::domain::{JobId, Lease, SessionId, WorkerId};
use roundhouse_shared::store::{Beat, Mail, Next, Store, StoreError};
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_child_that_wakes_its_parent_meets_the_heartbeat,
    a_child_that_wakes_its_parent_meets_the_reaper,
];

const ROUNDS: usize = 40;
const CHILDREN: usize = 4;

/// A parent that runs, with children that run, all of one worker; nothing has ended yet.
struct Family {
    worker: WorkerId,
    parent: (Lease, Mail),
    children: Vec<(Lease, Mail)>,
}

async fn family(store: &Store) -> Family {
    let worker = registered(store).await;
    let session = session(store).await;
    admit(store, session, "start them").await;
    let (lease, mail) = begin_as(store, session, worker, LONG_MS).await;
    let mut children = Vec::new();
    for n in 0..CHILDREN {
        let child = start_child(store, &lease, mail.turn, &format!("c{n}")).await;
        children.push(begin_as(store, child.session, worker, LONG_MS).await);
    }
    Family { worker, parent: (lease, mail), children }
}

/// How many jobs have told the parent that they have ended.
async fn woken(db: &Database) -> i64 {
    db.number("SELECT count(*) FROM jobs WHERE kind = 'wake'").await
}

async fn a_child_that_wakes_its_parent_meets_the_heartbeat(db: &Database) {
    let mut told = 0;
    for _ in 0..ROUNDS {
        let Family { worker, parent, children } = family(&db.store).await;
        let mut tasks: JoinSet<Result<(), StoreError>> = JoinSet::new();
        for (lease, mail) in children {
            let store = db.store.clone();
            tasks.spawn(async move { store.finish(&lease, answered(mail.turn, "ok")).await.map(drop) });
        }
        for _ in 0..3 {
            let store = db.store.clone();
            tasks.spawn(async move {
                store.renew(Beat { worker, lease_ms: LONG_MS }).await?;
                store.held(worker).await.map(drop)
            });
        }
        // Its run has broken off: the heartbeat gives the session on.
        let (store, lease) = (db.store.clone(), parent.0);
        tasks.spawn(async move {
            while store.abandon(&lease, 3).await?.is_none() {
                tokio::task::yield_now().await;
            }
            Ok(())
        });
        for done in tasks.join_all().await {
            done.unwrap();
        }
        told += CHILDREN;
        assert_eq!(woken(db).await, i64::try_from(told).unwrap());
    }
}

async fn a_child_that_wakes_its_parent_meets_the_reaper(db: &Database) {
    let mut told = 0;
    for _ in 0..ROUNDS {
        let Family { worker, parent, children } = family(&db.store).await;
        let mut sessions: Vec<SessionId> = children.iter().map(|(lease, _)| lease.session).collect();
        sessions.push(parent.0.session);
        let mut tasks: JoinSet<Result<Vec<JobId>, StoreError>> = JoinSet::new();
        for (lease, mail) in children {
            let store = db.store.clone();
            tasks.spawn(async move {
                match store.finish(&lease, answered(mail.turn, "ok")).await {
                    Ok(done) => {
                        assert_eq!(done.next, Next::Idle);
                        Ok(ids(&done.ended))
                    }
                    // A reaper was faster: it has told the parent that the child has failed.
                    Err(StoreError::LeaseLost) => Ok(Vec::new()),
                    Err(error) => Err(error),
                }
            });
        }
        db.store.declare_dead(worker, None).await.unwrap();
        for _ in 0..2 {
            let (store, sessions) = (db.store.clone(), sessions.clone());
            tasks.spawn(async move {
                let mut ended = Vec::new();
                while !store.reapable(None, 1).await?.is_empty() {
                    for session in &sessions {
                        ended.extend(
                            store.reap(*session, 1).await?.into_iter().flat_map(|reaped| ids(&reaped.ended)),
                        );
                    }
                }
                Ok(ended)
            });
        }
        let mut ended: Vec<_> = tasks.join_all().await.into_iter().flat_map(Result::unwrap).collect();
        ended.sort();
        ended.dedup();
        // The parent's own job too.
        assert_eq!(ended.len(), CHILDREN + 1);
        told += CHILDREN;
        assert_eq!(woken(db).await, i64::try_from(told).unwrap());
    }
}
