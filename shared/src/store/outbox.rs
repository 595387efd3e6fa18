//! The outbox: what is to be told of a transaction is stored in it, and so is told even if its process dies after the commit.

use super::db::{Row, Tx, values};
use super::finish::{Ended, Finished, to_json};
use super::step::Step;
use super::tx::Locked;
use super::{Outcome, Store, StoreError, TurnOutcome};
use crate::domain::{
    ChatResult, Cut, EventKind, InteractionId, InteractionState, LeaseToken, NewEvent, Place, Scope,
    SessionId, Stored, TurnId,
};

/// How long the answers of a deleted session's jobs are kept for those who wait elsewhere, in milliseconds.
pub(super) const ANSWERS_KEPT_MS: i64 = 10 * 60_000;

impl Store {
    /// What was stored to be published at least `age_ms` ago and is still there, oldest first: whoever stored it has died, or
    /// could not reach the bus. What a run has stored that still has its lease is left to it.
    pub async fn left_over(&self, age_ms: i64, limit: i64) -> Result<Vec<Stored>, StoreError> {
        let now_ms = self.now_ms().await?;
        let sql = "SELECT o.id, o.session_id, o.token, o.entry, o.events FROM outbox o \
                   JOIN sessions s ON s.id = o.session_id \
                   WHERE o.created_ms <= $1 AND (s.lease_worker IS NULL OR o.token IS NULL OR o.token <> s.lease_token) \
                   ORDER BY o.id LIMIT $2";
        self.db.all(sql, values![now_ms - age_ms, limit]).await?.iter().map(stored).collect()
    }

    /// What others than this run have stored to be published of a session, in order.
    pub async fn left_over_of(
        &self,
        session: SessionId,
        besides: LeaseToken,
    ) -> Result<Vec<Stored>, StoreError> {
        let sql = "SELECT id, session_id, token, entry, events FROM outbox \
                   WHERE session_id = $1 AND (token IS NULL OR token <> $2) ORDER BY id";
        self.db.all(sql, values![session.0, besides.0]).await?.iter().map(stored).collect()
    }

    /// Forgets what was published.
    pub async fn published(&self, ids: &[i64]) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        tx.run(self.db.dialect().forget_published, values![to_json(&ids)]).await?;
        tx.commit().await
    }

    /// Forgets the answers of deleted sessions' jobs for which nobody waits any more.
    pub async fn forget_last_answers(&self) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let before = tx.now_ms().await? - ANSWERS_KEPT_MS;
        tx.run("DELETE FROM last_answers WHERE ended_ms < $1", values![before]).await?;
        tx.commit().await
    }
}

fn stored(row: &Row) -> Result<Stored, StoreError> {
    let id: i64 = row.get("id")?;
    let place = match (row.get::<Option<i64>>("token")?, row.get::<Option<i64>>("entry")?) {
        (Some(token), Some(entry)) => Some(Place { token: LeaseToken(token), entry }),
        _ => None,
    };
    let text: String = row.get("events")?;
    // A line that a newer version wrote and this one cannot read is not told.
    let events = text.lines().filter_map(NewEvent::from_line).collect();
    Ok(Stored { id, session: SessionId(row.get("session_id")?), place, events })
}

/// A row that is still there.
pub(super) async fn find(tx: &mut Tx, id: Option<i64>) -> Result<Option<Stored>, StoreError> {
    let Some(id) = id else { return Ok(None) };
    let sql = "SELECT id, session_id, token, entry, events FROM outbox WHERE id = $1";
    tx.first(sql, values![id]).await?.as_ref().map(stored).transpose()
}

/// Events of a transaction, collected until it knows all of them.
pub(super) struct Closing<'r> {
    row: &'r Locked,
    events: Vec<NewEvent>,
}

impl<'r> Closing<'r> {
    pub(super) const fn of(row: &'r Locked) -> Self {
        Self { row, events: Vec::new() }
    }

    pub(super) fn tell(&mut self, scope: Scope, kind: &EventKind) {
        self.events.push(NewEvent::new(self.row.id, self.row.now_ms, scope, kind));
    }

    /// Tells of questions that were closed without an answer.
    pub(super) fn closed(&mut self, scope: Scope, questions: &[InteractionId], state: InteractionState) {
        for &interaction_id in questions {
            self.tell(scope, &EventKind::InteractionResolved { interaction_id, state, decision: None });
        }
    }

    /// Tells of answered jobs. A failed one is told with its turn.
    pub(super) fn answered(&mut self, ended: &[Ended], turn: Option<TurnId>) {
        for Ended { job, kind, outcome, .. } in ended {
            let scope = Scope { job: Some(*job), turn, ..Scope::default() };
            let cancelled = EventKind::JobCancelled { kind: *kind };
            let response = |result: &ChatResult| EventKind::ChatResponse(Box::new(result.clone()));
            match outcome {
                Outcome::Answered(result) if result.cancelled => {
                    self.tell(scope, &cancelled);
                    self.tell(scope, &response(result));
                }
                Outcome::Answered(result) => self.tell(scope, &response(result)),
                Outcome::Cancelled => self.tell(scope, &cancelled),
                Outcome::Cut(_) | Outcome::Failed(_) => {}
            }
        }
    }

    /// Tells of a turn's end.
    pub(super) fn finished(&mut self, turn: Scope, done: &Finished) {
        for message in &done.messages {
            let scope = Scope { message: Some(message.id), ..turn };
            self.tell(scope, &EventKind::MessageCompleted { message: Box::new(message.clone().into()) });
        }
        self.closed(turn, &done.withdrawn, InteractionState::Cancelled);
        self.tell(
            turn,
            &match &done.outcome {
                TurnOutcome::Failed(problem) => EventKind::TurnFailed { problem: problem.clone() },
                TurnOutcome::Answered | TurnOutcome::Cancelled => {
                    EventKind::TurnCompleted { usage: done.usage.into(), iterations: done.iterations }
                }
            },
        );
        self.answered(&done.ended, turn.turn);
    }

    /// Tells of a fork, a trim or a reset that has ended.
    pub(super) fn worked(&mut self, cut: &Cut, ended: &[Ended]) {
        for one in ended {
            if let Outcome::Cut(result) = &one.outcome {
                let (message, kind) = match cut {
                    Cut::Trim { at } => (Some(*at), EventKind::SessionTrimmed { deleted: result.deleted }),
                    Cut::Reset => (None, EventKind::SessionReset { deleted: result.deleted }),
                    Cut::Fork(asked) => {
                        (asked.at, EventKind::SessionForked { forked_session_id: asked.into })
                    }
                };
                self.tell(Scope { job: Some(one.job), message, ..Scope::default() }, &kind);
            }
            self.answered(std::slice::from_ref(one), None);
        }
    }

    /// Tells of what was taken from a run that did not end by itself.
    pub(super) fn taken_back(&mut self, turn: Option<TurnId>, superseded: &[InteractionId], ended: &[Ended]) {
        let of_turn = Scope { turn, ..Scope::default() };
        self.closed(of_turn, superseded, InteractionState::Superseded);
        let problem = ended.iter().find_map(|ended| match &ended.outcome {
            Outcome::Failed(problem) => Some(problem.clone()),
            Outcome::Answered(_) | Outcome::Cut(_) | Outcome::Cancelled => None,
        });
        // Only turns tell of their failure; a cut's is told to whoever asked for it.
        if let (Some(problem), Some(_)) = (problem, turn) {
            self.tell(of_turn, &EventKind::TurnFailed { problem });
        }
        self.answered(ended, turn);
    }

    /// Stores them, in the transaction. The step says where they stand among the events of the run that has the session.
    pub(super) async fn leave(self, tx: &mut Tx, step: Option<Step>) -> Result<Option<Stored>, StoreError> {
        if self.events.is_empty() {
            return Ok(None);
        }
        let entry = step.and_then(Step::entry);
        let place = entry.map(|entry| Place { token: self.row.lease_token, entry });
        let lines: Vec<_> = self.events.iter().map(NewEvent::to_line).collect();
        let sql = "INSERT INTO outbox (session_id, token, entry, events, created_ms) VALUES ($1, $2, $3, $4, $5) \
                   RETURNING id";
        let token = place.map(|place| place.token.0);
        let values = values![self.row.id.0, token, entry, lines.join("\n"), self.row.now_ms];
        let id = tx.one(sql, values).await?.get("id")?;
        Ok(Some(Stored { id, session: self.row.id, place, events: self.events }))
    }
}
