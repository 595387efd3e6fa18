//! What holds of every database of ours between any two transactions.

use super::Database;

/// Sums columns over the turns of session `s` since its last reset: those that took a job which was admitted after it, and
/// what the model said by itself, as long as that is there.
macro_rules! since_reset {
    ($($before:literal, $sum:literal),+) => {
        concat!($(
            $before, "(SELECT coalesce(sum(t.", $sum, ") FROM turns t WHERE t.session_id = s.id AND EXISTS \
            (SELECT 1 FROM jobs j WHERE j.turn_id = t.id AND j.seq > coalesce((SELECT max(r.seq) FROM jobs r \
            WHERE r.session_id = s.id AND r.kind = 'reset' AND r.state = 'succeeded'), 0)) \
            OR t.session_id = s.id AND EXISTS (SELECT 1 FROM messages m WHERE m.turn_id = t.id AND m.origin = 'autonomous'))"
        ),+)
    };
}

/// Counts what must not be.
const NEVER: [(&str, &str); 21] = [
    (
        "an open job that has ended, or an ended one that has not",
        "SELECT count(*) FROM jobs WHERE (state IN ('pending', 'claimed')) <> (ended_ms IS NULL)",
    ),
    (
        "an open job with an answer",
        "SELECT count(*) FROM jobs WHERE state IN ('pending', 'claimed') AND coalesce(result, problem) IS NOT NULL",
    ),
    (
        "an ended job without exactly one answer, or a cut that was cancelled and has any",
        "SELECT count(*) FROM jobs WHERE ended_ms IS NOT NULL AND (result IS NOT NULL AND problem IS NOT NULL \
         OR (result IS NULL AND problem IS NULL) <> (state = 'cancelled' AND request IS NOT NULL))",
    ),
    (
        "a job whose answer and state differ in kind",
        "SELECT count(*) FROM jobs WHERE ended_ms IS NOT NULL AND (state = 'failed') <> (problem IS NOT NULL)",
    ),
    (
        "a claim of a turn that is not the session's, or under another lease than the session's",
        "SELECT count(*) FROM jobs j JOIN sessions s ON s.id = j.session_id WHERE j.state = 'claimed' \
         AND (s.lease_worker IS NULL OR s.lease_token <> j.claim_token OR s.lease_worker <> j.worker_id \
              OR (j.request IS NULL AND (s.active_turn_id IS NULL OR s.active_turn_id <> j.turn_id)))",
    ),
    (
        "a turn that runs without a lease or without a claim",
        "SELECT count(*) FROM sessions s WHERE s.active_turn_id IS NOT NULL AND (s.lease_worker IS NULL \
         OR NOT EXISTS (SELECT 1 FROM jobs j WHERE j.session_id = s.id AND j.state = 'claimed'))",
    ),
    (
        "a cancel of a turn that does not run",
        "SELECT count(*) FROM sessions WHERE cancel_turn_id IS NOT NULL \
         AND (active_turn_id IS NULL OR cancel_turn_id <> active_turn_id)",
    ),
    (
        "a ledger entry that is open though nothing of it can go on",
        "SELECT count(*) FROM turns t WHERE t.ended_ms IS NULL AND NOT EXISTS \
         (SELECT 1 FROM jobs j WHERE j.turn_id = t.id AND j.state IN ('pending', 'claimed'))",
    ),
    (
        "a ledger entry that has ended though a job waits for it",
        "SELECT count(*) FROM turns t JOIN jobs j ON j.turn_id = t.id \
         WHERE t.ended_ms IS NOT NULL AND j.state IN ('pending', 'claimed')",
    ),
    (
        "a ledger entry whose state and end differ",
        "SELECT count(*) FROM turns WHERE (state = 'running') <> (ended_ms IS NULL)",
    ),
    (
        "a session whose counters are not its messages'",
        "SELECT count(*) FROM sessions s \
         WHERE s.message_count <> (SELECT count(*) FROM messages m WHERE m.session_id = s.id) \
         OR coalesce(s.last_message_id, 0) <> (SELECT coalesce(max(m.id), 0) FROM messages m WHERE m.session_id = s.id)",
    ),
    (
        "a session whose tokens are not those of its turns since its last reset",
        since_reset!(
            "SELECT count(*) FROM sessions s WHERE s.input_tokens <> ",
            "input_tokens), 0",
            " OR s.output_tokens <> ",
            "output_tokens), 0",
            " OR s.cache_tokens <> ",
            "cache_tokens), 0"
        ),
    ),
    (
        "a session whose cost is not that of its turns since its last reset, or known where none of theirs is",
        since_reset!(
            "SELECT count(*) FROM sessions s WHERE coalesce(s.cost_nanos, -1) <> ",
            "cost_nanos), -1"
        ),
    ),
    (
        "a place in the order of arrival that is taken twice, or lies ahead of the counter",
        "SELECT count(*) FROM sessions s JOIN \
         (SELECT session_id, seq FROM jobs UNION ALL SELECT session_id, seq FROM messages) q ON q.session_id = s.id \
         WHERE q.seq < 1 OR q.seq > s.last_seq OR 1 < (\
         (SELECT count(*) FROM jobs j WHERE j.session_id = s.id AND j.seq = q.seq) + \
         (SELECT count(*) FROM messages m WHERE m.session_id = s.id AND m.seq = q.seq))",
    ),
    (
        "a question that is open though its turn does not run",
        "SELECT count(*) FROM interactions i JOIN sessions s ON s.id = i.session_id WHERE i.state = 'open' \
         AND (s.active_turn_id IS NULL OR s.active_turn_id <> i.turn_id)",
    ),
    (
        "a question whose state differs from its end or its answer",
        "SELECT count(*) FROM interactions WHERE (state = 'open') <> (resolved_ms IS NULL) \
         OR (state = 'answered') <> (answer IS NOT NULL)",
    ),
    (
        "a fork, trim or reset that another open job came before, or that has a turn",
        "SELECT count(*) FROM jobs c WHERE c.request IS NOT NULL AND c.state IN ('pending', 'claimed') AND \
         (c.turn_id IS NOT NULL OR EXISTS (SELECT 1 FROM jobs j WHERE j.session_id = c.session_id \
          AND j.state IN ('pending', 'claimed') AND j.seq < c.seq))",
    ),
    (
        "a message of a job that waits, which is gone",
        "SELECT count(*) FROM jobs j WHERE j.state = 'pending' AND j.message_id IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.id = j.message_id)",
    ),
    (
        "a summary that stands for another number of messages than its session says",
        "SELECT count(*) FROM sessions s WHERE s.compact_size <> (SELECT count(*) FROM messages m \
         WHERE m.session_id = s.id AND m.origin <> 'compaction' AND m.consumed_seq <= (SELECT c.consumed_seq \
         FROM messages c WHERE c.session_id = s.id AND c.origin = 'compaction' ORDER BY c.id DESC LIMIT 1))",
    ),
    (
        "a wake that tells of a job which has not ended",
        "SELECT count(*) FROM jobs w JOIN jobs j ON j.id = w.woken_by WHERE w.kind <> 'wake' OR j.ended_ms IS NULL",
    ),
    (
        "a place in the order of consumption that others have than people's messages of one turn",
        "SELECT count(*) FROM messages a JOIN messages b ON a.session_id = b.session_id \
         AND a.consumed_seq = b.consumed_seq AND a.id < b.id WHERE a.origin <> 'compaction' \
         AND b.origin <> 'compaction' AND (a.role <> 'user' OR b.role <> 'user' OR a.turn_id <> b.turn_id)",
    ),
];

/// Fails where any of it does not hold.
pub(crate) async fn check(db: &Database) {
    for (what, sql) in NEVER {
        assert_eq!(db.number(sql).await, 0, "found {what}");
    }
}
