//! Questions to people: the first answer counts, and none outlives its turn.

use roundhouse_shared::domain::{
    Decision, Interaction, InteractionAnswer, InteractionId, InteractionKind, InteractionState,
    InteractionView, Lease, LeaseToken, SessionId, SessionStatus, TurnId,
};
use roundhouse_shared::store::{NewInteraction, SessionFilter, Store, StoreError, TurnEnd, TurnOutcome};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::*;

on_both_databases![
    a_session_waits_while_a_question_is_open,
    an_answer_reads_back_as_given,
    of_ten_answers_the_first_counts,
    a_question_is_its_sessions_own,
    a_question_whose_time_is_up_is_not_answered,
    an_answer_that_came_in_time_stands,
    a_lost_run_closes_no_question,
    a_question_that_the_engine_takes_back_is_closed,
    a_question_is_closed_with_its_turn,
    a_question_of_a_lost_run_is_superseded,
    an_answer_that_a_lost_run_did_not_take_is_the_next_ones,
    an_answer_that_was_taken_is_used_up,
    only_the_turn_that_runs_asks,
    a_deleted_session_takes_its_questions_with_it,
];

fn question(turn: TurnId, kind: InteractionKind) -> NewInteraction {
    NewInteraction {
        turn, kind, payload: json!({"tool": "rm", "input": {"ü": [1, null]}}), open_ms: LONG_MS
    }
}

fn yes() -> InteractionAnswer {
    InteractionAnswer { decision: Decision::Allow, answers: None, message: None, updated_input: None }
}

fn no(word: &str) -> InteractionAnswer {
    InteractionAnswer { decision: Decision::Deny, message: Some(word.to_owned()), ..yes() }
}

/// A session at work that asks.
async fn asking(store: &Store) -> (SessionId, Lease, TurnId, Interaction) {
    let (session, _, lease, mail) = running(store).await;
    let asked = store.ask(&lease, question(mail.turn, InteractionKind::Permission)).await.unwrap();
    (session, lease, mail.turn, asked)
}

async fn read(store: &Store, asked: &Interaction) -> Interaction {
    store.interaction(asked.session, asked.id).await.unwrap().unwrap()
}

async fn status(store: &Store, session: SessionId) -> SessionStatus {
    store.session(session).await.unwrap().unwrap().status
}

#[track_caller]
fn assert_resolved<T: std::fmt::Debug>(result: &Result<T, StoreError>) {
    assert!(matches!(result, Err(StoreError::InteractionResolved)), "{result:?}");
}

async fn a_session_waits_while_a_question_is_open(store: &Store) {
    let (session, lease, turn, first) = asking(store).await;
    assert_eq!((first.session, first.turn, first.kind), (session, turn, InteractionKind::Permission));
    assert_eq!((first.state, &first.answer, first.resolved_ms), (InteractionState::Open, &None, None));
    assert_eq!(first.expires_ms, first.created_ms + LONG_MS);
    assert_eq!(read(store, &first).await, first);
    let second = store.ask(&lease, question(turn, InteractionKind::Question)).await.unwrap();
    assert_eq!(store.open_interactions(session).await.unwrap(), [first.clone(), second.clone()]);
    let waiting =
        SessionFilter { status: Some(SessionStatus::Waiting), limit: 10, ..SessionFilter::default() };
    assert_eq!(store.sessions(&waiting).await.unwrap()[0].id, session);

    store.resolve(session, first.id, &yes()).await.unwrap();
    assert_eq!(status(store, session).await, SessionStatus::Waiting);
    assert_eq!(store.open_interactions(session).await.unwrap(), std::slice::from_ref(&second));
    store.resolve(session, second.id, &yes()).await.unwrap();
    assert_eq!(status(store, session).await, SessionStatus::Running);
    assert_eq!(store.open_interactions(session).await.unwrap(), []);
    store.finish(&lease, answered(turn, "ok")).await.unwrap();
    assert_eq!(status(store, session).await, SessionStatus::Idle);
}

async fn an_answer_reads_back_as_given(store: &Store) {
    let (session, lease, turn, _) = asking(store).await;
    let full = InteractionAnswer {
        answers: json!({"which?": "that ß"}).as_object().cloned(),
        updated_input: json!({"path": "/tmp", "n": 1}).as_object().cloned(),
        ..no("not there")
    };
    for (kind, given) in [(InteractionKind::Plan, full), (InteractionKind::Question, yes())] {
        let asked = store.ask(&lease, question(turn, kind)).await.unwrap();
        let resolved = store.resolve(session, asked.id, &given).await.unwrap();
        assert_eq!((resolved.state, resolved.answer.as_ref()), (InteractionState::Answered, Some(&given)));
        assert_eq!((resolved.kind, &resolved.payload), (kind, &asked.payload));
        assert!(asked.created_ms <= resolved.resolved_ms.unwrap());
        assert_eq!(read(store, &asked).await, resolved);
        assert_eq!(InteractionView::from(resolved).decision, Some(given.decision));
    }
}

async fn of_ten_answers_the_first_counts(store: &Store) {
    let (session, .., asked) = asking(store).await;
    let mut people = JoinSet::new();
    for n in 0..10 {
        let (store, id) = (store.clone(), asked.id);
        people.spawn(async move { store.resolve(session, id, &no(&n.to_string())).await });
    }
    let (counted, late): (Vec<_>, Vec<_>) = people.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!((counted.len(), late.len()), (1, 9));
    late.iter().for_each(assert_resolved);
    let counted = counted[0].as_ref().unwrap();
    assert_eq!(read(store, &asked).await, *counted);
    assert_resolved(&store.resolve(session, asked.id, &yes()).await);
    assert_eq!(read(store, &asked).await, *counted);
}

async fn a_question_is_its_sessions_own(store: &Store) {
    let (session, lease, turn, asked) = asking(store).await;
    let (other, other_lease, ..) = asking(store).await;
    for (session, id) in [(session, InteractionId::generate()), (other, asked.id)] {
        let error = store.resolve(session, id, &yes()).await.unwrap_err();
        assert!(matches!(error, StoreError::InteractionNotFound), "{error:?}");
        assert_eq!(store.interaction(session, id).await.unwrap(), None);
    }
    for (lease, id) in [(lease, InteractionId::generate()), (other_lease, asked.id)] {
        let error = store.expire(&lease, id).await.unwrap_err();
        assert!(matches!(error, StoreError::InteractionNotFound), "{error:?}");
    }
    let error = store.resolve(SessionId::generate(), asked.id, &yes()).await.unwrap_err();
    assert!(matches!(error, StoreError::SessionNotFound), "{error:?}");
    assert_eq!(read(store, &asked).await, asked);
    store.finish(&lease, answered(turn, "ok")).await.unwrap();
    assert_eq!(store.open_interactions(other).await.unwrap().len(), 1);
}

async fn a_question_whose_time_is_up_is_not_answered(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    let late = NewInteraction { open_ms: -1, ..question(mail.turn, InteractionKind::Question) };
    let asked = store.ask(&lease, late).await.unwrap();
    // Whether or not its run has noticed.
    assert_resolved(&store.resolve(session, asked.id, &yes()).await);
    let expired = store.expire(&lease, asked.id).await.unwrap();
    assert_eq!((expired.state, &expired.answer), (InteractionState::Expired, &None));
    assert!(expired.resolved_ms.is_some());
    assert_resolved(&store.resolve(session, asked.id, &yes()).await);
    assert_eq!(store.expire(&lease, asked.id).await.unwrap(), expired);
    assert_eq!((read(store, &asked).await, status(store, session).await), (expired, SessionStatus::Running));
}

async fn an_answer_that_came_in_time_stands(store: &Store) {
    for _ in 0..20 {
        let (session, lease, _, asked) = asking(store).await;
        let given = yes();
        let (resolved, expired) =
            tokio::join!(store.resolve(session, asked.id, &given), store.expire(&lease, asked.id));
        let expired = expired.unwrap();
        match resolved {
            Ok(resolved) => assert_eq!((resolved.state, &expired), (InteractionState::Answered, &resolved)),
            Err(_) => assert_resolved(&resolved),
        }
        assert_ne!(expired.state, InteractionState::Open);
        assert_eq!(read(store, &asked).await, expired);
    }
}

async fn a_lost_run_closes_no_question(store: &Store) {
    let (session, lease, _, asked) = asking(store).await;
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    assert_lost(&store.expire(&stale, asked.id).await);
    assert_eq!(read(store, &asked).await, asked);
    store.resolve(session, asked.id, &yes()).await.unwrap();
}

async fn a_question_that_the_engine_takes_back_is_closed(store: &Store) {
    let (session, lease, _, asked) = asking(store).await;
    assert_eq!(store.withdraw(&lease).await.unwrap(), [asked.id]);
    assert_eq!(read(store, &asked).await.state, InteractionState::Cancelled);
    assert_resolved(&store.resolve(session, asked.id, &yes()).await);
    assert_eq!(status(store, session).await, SessionStatus::Running);
    assert_eq!(store.withdraw(&lease).await.unwrap(), []);
}

async fn a_question_is_closed_with_its_turn(store: &Store) {
    let failed = || {
        TurnOutcome::Failed(roundhouse_shared::problem::Problem::new(roundhouse_shared::code::Code::Internal))
    };
    for outcome in [TurnOutcome::Cancelled, TurnOutcome::Answered, failed()] {
        let (session, lease, turn, asked) = asking(store).await;
        let settled = store.ask(&lease, question(turn, InteractionKind::Plan)).await.unwrap();
        let settled = store.resolve(session, settled.id, &yes()).await.unwrap();
        store.finish(&lease, TurnEnd { outcome, ..answered(turn, "x") }).await.unwrap();
        let closed = read(store, &asked).await;
        assert_eq!((closed.state, &closed.answer), (InteractionState::Cancelled, &None));
        assert!(closed.resolved_ms.is_some());
        assert_eq!(read(store, &settled).await, settled);
        assert_resolved(&store.resolve(session, asked.id, &yes()).await);
        assert_eq!(store.open_interactions(session).await.unwrap(), []);
    }
}

async fn a_question_of_a_lost_run_is_superseded(store: &Store) {
    for max_attempts in [1, 3] {
        let session = session(store).await;
        admit(store, session, "first").await;
        let (lease, mail) = begin_and_die(store, session).await;
        let asked = store.ask(&lease, question(mail.turn, InteractionKind::Permission)).await.unwrap();
        store.reap(session, max_attempts).await.unwrap().unwrap();
        assert_eq!(read(store, &asked).await.state, InteractionState::Superseded);
        assert_resolved(&store.resolve(session, asked.id, &yes()).await);
        assert_lost(&store.expire(&lease, asked.id).await);
        assert_eq!(store.open_interactions(session).await.unwrap(), []);
    }
}

/// A session whose run died after it had asked this, and what the question became of.
async fn asked_and_died(store: &Store) -> (SessionId, Lease, Interaction) {
    let session = session(store).await;
    admit(store, session, "first").await;
    let (lease, mail) = begin_and_die(store, session).await;
    let asked = store.ask(&lease, question(mail.turn, InteractionKind::Permission)).await.unwrap();
    (session, lease, asked)
}

async fn an_answer_that_a_lost_run_did_not_take_is_the_next_ones(store: &Store) {
    let (session, _, asked) = asked_and_died(store).await;
    let given = store.resolve(session, asked.id, &yes()).await.unwrap();
    store.reap(session, 3).await.unwrap().unwrap();
    let (lease, mail) = begin(store, session).await;

    let another = NewInteraction { payload: json!({"tool": "ls"}), ..question(mail.turn, asked.kind) };
    assert_ne!(store.ask(&lease, another).await.unwrap().id, asked.id);
    let mut again = question(mail.turn, asked.kind);
    again.payload["toolCallId"] = json!("another");
    assert_eq!(store.ask(&lease, again.clone()).await.unwrap(), given);
    store.take_answer(&lease, asked.id).await.unwrap();
    let anew = store.ask(&lease, again).await.unwrap();
    assert_eq!((anew.state, anew.id == asked.id), (InteractionState::Open, false));
}

async fn an_answer_that_was_taken_is_used_up(store: &Store) {
    let (session, lease, asked) = asked_and_died(store).await;
    store.resolve(session, asked.id, &yes()).await.unwrap();
    store.take_answer(&lease, asked.id).await.unwrap();
    store.reap(session, 3).await.unwrap().unwrap();
    assert_lost(&store.take_answer(&lease, asked.id).await);
    let (lease, mail) = begin(store, session).await;
    assert_ne!(store.ask(&lease, question(mail.turn, asked.kind)).await.unwrap().id, asked.id);
}

async fn only_the_turn_that_runs_asks(store: &Store) {
    let (session, _, lease, mail) = running(store).await;
    enqueue(store, session, "second").await;
    let question = |turn| question(turn, InteractionKind::Question);
    let stale = Lease { token: LeaseToken(lease.token.0 - 1), ..lease };
    assert_lost(&store.ask(&stale, question(mail.turn)).await);
    assert_lost(&store.ask(&lease, question(TurnId::generate())).await);
    store.finish(&lease, answered(mail.turn, "ok")).await.unwrap();
    assert_lost(&store.ask(&lease, question(mail.turn)).await);
    assert_eq!(store.open_interactions(session).await.unwrap(), []);
}

async fn a_deleted_session_takes_its_questions_with_it(db: &Database) {
    let store = &db.store;
    let (session, lease, turn, asked) = asking(store).await;
    store.finish(&lease, answered(turn, "ok")).await.unwrap();
    store.delete_session(session).await.unwrap();
    assert_eq!(store.interaction(session, asked.id).await.unwrap(), None);
    assert_eq!(db.number("SELECT count(*) FROM interactions").await, 0);
}
