-- Which sessions are to be rung for.

-- A worker that cannot run the session's next job has taken its ring: those that can take it from here.
ALTER TABLE sessions ADD COLUMN refused BOOLEAN NOT NULL DEFAULT FALSE;
-- `enqueued_ms` is 0 where there is nothing to ring for: so the index has only what waits for a run.
UPDATE sessions SET enqueued_ms = 0 WHERE enqueued_ms > 0 AND lease_worker IS NULL
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.session_id = sessions.id AND jobs.state = 'pending');
CREATE INDEX sessions_to_ring ON sessions (agent, enqueued_ms) WHERE lease_worker IS NULL AND enqueued_ms > 0;
CREATE INDEX jobs_pending_by_kind ON jobs (kind, session_id) WHERE state = 'pending' AND kind <> 'chat';
