//! Workers: who there is, and what each runs.

use roundhouse_shared::domain::{Agent, AgentStatus, EngineKind, HeldLease, LeftOutTool, Worker};
use roundhouse_shared::store::{Beat, Store};

use crate::support::*;

on_both_databases![
    a_worker_reads_back_as_registered,
    a_worker_that_registers_again_is_still_one,
    a_stopping_worker_is_shown_until_its_time_runs_out,
    a_worker_whose_time_ran_out_is_not_shown,
    a_worker_that_cannot_be_read_keeps_no_other_from_being_shown,
    agents_are_remembered_when_their_workers_are_gone,
    workers_long_dead_are_forgotten,
    what_an_agent_leaves_out_is_shown_with_its_worker,
    a_worker_is_not_forgotten_while_a_session_names_it,
    workers_are_shown_with_what_they_run,
];

fn agents(reason: Option<&str>) -> Vec<AgentStatus> {
    let agent = Agent { name: "helper".to_owned(), engine: EngineKind::OpenAi, model: None, demo: true };
    vec![AgentStatus {
        agent,
        available: reason.is_none(),
        reason: reason.map(str::to_owned),
        left_out_tools: Vec::new(),
    }]
}

async fn a_worker_reads_back_as_registered(store: &Store) {
    let new = Worker { agents: agents(Some("no key")), ..worker("host-1") };
    let before = store.now_ms().await.unwrap();
    store.register_worker(&new, LONG_MS).await.unwrap();
    let after = store.now_ms().await.unwrap();

    let workers = store.workers().await.unwrap();

    let started_ms = workers[0].started_ms;
    assert!((before..=after).contains(&started_ms), "{before} {started_ms} {after}");
    let expected = Worker { started_ms, seen_ms: started_ms, expires_ms: started_ms + LONG_MS, ..new };
    assert_eq!(workers, [expected]);
}

async fn a_worker_that_registers_again_is_still_one(store: &Store) {
    let first = Worker { agents: agents(Some("no key")), ..worker("host") };
    store.register_worker(&first, LONG_MS).await.unwrap();
    let started_ms = store.workers().await.unwrap()[0].started_ms;
    store.register_worker(&Worker { agents: agents(None), ..first }, 2 * LONG_MS).await.unwrap();
    let workers = store.workers().await.unwrap();
    assert_eq!((workers.len(), workers[0].started_ms), (1, started_ms));
    assert!(workers[0].agents[0].available);
    assert_eq!(workers[0].expires_ms, workers[0].seen_ms + 2 * LONG_MS);
}

async fn agents_are_remembered_when_their_workers_are_gone(db: &Database) {
    let store = &db.store;
    assert_eq!(store.seen_agents().await.unwrap(), []);
    store
        .register_worker(&Worker { agents: agents(Some("no key")), ..worker("unable") }, LONG_MS)
        .await
        .unwrap();
    assert_eq!(store.seen_agents().await.unwrap(), [], "nobody could run it");
    let gone = Worker { agents: agents(None), ..worker("gone") };
    store.register_worker(&gone, DEAD_MS).await.unwrap();
    store.stop_worker(gone.id).await.unwrap();
    store.declare_dead(gone.id, None).await.unwrap();
    store.forget_workers().await.unwrap();

    let seen = store.seen_agents().await.unwrap();
    assert_eq!(seen.iter().map(|seen| &seen.agent).collect::<Vec<_>>(), [&gone.agents[0].agent]);
    assert!((0..LONG_MS).contains(&seen[0].ago_ms), "{}", seen[0].ago_ms);
    db.execute("UPDATE workers SET seen_ms = seen_ms - 600000").await;
    let seen = store.seen_agents().await.unwrap();
    assert!((600_000..LONG_MS).contains(&seen[0].ago_ms), "{}", seen[0].ago_ms);
    db.execute("UPDATE workers SET seen_ms = seen_ms - 3600000").await;
    assert_eq!(store.seen_agents().await.unwrap(), []);
}

async fn a_stopping_worker_is_shown_until_its_time_runs_out(store: &Store) {
    let (stopping, staying) = (registered(store).await, registered(store).await);
    store.stop_worker(stopping).await.unwrap();
    let mut workers = store.workers().await.unwrap();
    workers.sort_by_key(|worker| worker.id);
    let shown: Vec<_> = workers.iter().map(|worker| (worker.id, worker.stopping)).collect();
    assert_eq!(shown, [(stopping, true), (staying, false)]);

    // A beat does not make it take work again.
    store.renew(Beat { worker: stopping, lease_ms: LONG_MS }).await.unwrap();
    assert!(store.workers().await.unwrap().iter().any(|worker| worker.stopping));
    store.renew(Beat { worker: stopping, lease_ms: DEAD_MS }).await.unwrap();
    let left: Vec<_> = store.workers().await.unwrap().iter().map(|worker| worker.id).collect();
    assert_eq!(left, [staying]);
}

async fn a_worker_whose_time_ran_out_is_not_shown(store: &Store) {
    store.register_worker(&worker("dead"), DEAD_MS).await.unwrap();
    store.register_worker(&worker("alive"), LONG_MS).await.unwrap();
    let hosts: Vec<_> = store.workers().await.unwrap().into_iter().map(|worker| worker.host).collect();
    assert_eq!(hosts, ["alive"]);
}

/// Another version of the program may have agents that this one cannot read.
async fn a_worker_that_cannot_be_read_keeps_no_other_from_being_shown(db: &Database) {
    db.store.register_worker(&worker("odd"), LONG_MS).await.unwrap();
    db.execute("UPDATE workers SET agents = '[{\"from\": \"the future\"}]'").await;
    db.store.register_worker(&worker("even"), LONG_MS).await.unwrap();
    let hosts: Vec<_> = db.store.workers().await.unwrap().into_iter().map(|worker| worker.host).collect();
    assert_eq!(hosts, ["even"]);
}

async fn workers_long_dead_are_forgotten(db: &Database) {
    let [long_dead, dead, alive] = ["long dead", "dead", "alive"].map(worker);
    for worker in [&long_dead, &dead, &alive] {
        db.store.register_worker(worker, LONG_MS).await.unwrap();
    }
    assert!(db.store.declare_dead(long_dead.id, None).await.unwrap());
    // Also those that live seem to have expired long ago.
    db.clock.step(2 * LONG_MS);
    assert!(db.store.declare_dead(dead.id, None).await.unwrap());
    db.store.forget_workers().await.unwrap();
    assert_eq!(db.texts("SELECT host FROM workers ORDER BY host").await, ["alive", "dead"]);
    db.store.renew(Beat { worker: alive.id, lease_ms: LONG_MS }).await.unwrap();
}

async fn a_worker_is_not_forgotten_while_a_session_names_it(db: &Database) {
    let session = session(&db.store).await;
    admit(&db.store, session, "hello").await;
    begin_and_die(&db.store, session).await;
    db.clock.step(2 * LONG_MS);
    db.store.forget_workers().await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM workers").await, 1);
    db.store.reap(session, 3).await.unwrap().unwrap();
    db.store.forget_workers().await.unwrap();
    assert_eq!(db.number("SELECT count(*) FROM workers").await, 0);
}

async fn workers_are_shown_with_what_they_run(store: &Store) {
    let (one, idle) = (registered(store).await, registered(store).await);
    let session = session(store).await;
    admit(store, session, "hello").await;
    let (lease, mail) = begin_as(store, session, one, LONG_MS).await;
    store.cancel_session(session).await.unwrap();
    running(store).await;

    let workers = store.workers().await.unwrap();

    let of = |id| workers.iter().find(|worker| worker.id == id).unwrap();
    assert_eq!(of(idle).leases, []);
    let [held] = of(one).leases[..] else { panic!("{workers:?}") };
    assert_eq!((held.session, held.token), (session, lease.token));
    assert_eq!((held.turn, held.cancel_turn), (Some(mail.turn), Some(mail.turn)));
    assert_eq!(held.expires_ms, of(one).expires_ms);
    store.renew(Beat { worker: one, lease_ms: 2 * LONG_MS }).await.unwrap();
    let renewed: Vec<HeldLease> = store.held(one).await.unwrap();
    assert!(held.expires_ms < renewed[0].expires_ms);
    let workers = store.workers().await.unwrap();
    assert_eq!(workers.iter().find(|worker| worker.id == one).unwrap().leases, renewed);
}

async fn what_an_agent_leaves_out_is_shown_with_its_worker(store: &Store) {
    let new = Worker { agents: agents(None), ..worker("host") };
    store.register_worker(&new, LONG_MS).await.unwrap();
    let text = str::to_owned;
    let left = vec![LeftOutTool { server: text("files"), tool: text("odd"), reason: text("no object") }];
    store.set_left_out(new.id, "another", &left).await.unwrap();
    assert_eq!(store.workers().await.unwrap()[0].agents, agents(None));

    store.set_left_out(new.id, "helper", &left).await.unwrap();

    assert_eq!(store.workers().await.unwrap()[0].agents[0].left_out_tools, left);
    store.set_left_out(new.id, "helper", &[]).await.unwrap();
    assert_eq!(store.workers().await.unwrap()[0].agents, agents(None));
    store.set_left_out(worker("gone").id, "helper", &left).await.unwrap();
}
