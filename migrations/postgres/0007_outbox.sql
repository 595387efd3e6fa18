-- Events that a transaction has left to be published after its commit. Whoever has published them deletes the row.
CREATE TABLE outbox (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id UUID   NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    -- Where they stand among the events of the run that left them.
    token      BIGINT,
    entry      BIGINT,
    -- An event in each line.
    events     TEXT   NOT NULL,
    created_ms BIGINT NOT NULL
);
CREATE INDEX outbox_by_session ON outbox (session_id, id);
CREATE INDEX outbox_by_age ON outbox (created_ms);

-- The answers of jobs whose session was deleted, for a while: somebody may wait for them at another process.
CREATE TABLE last_answers (
    job_id   UUID   NOT NULL PRIMARY KEY,
    state    TEXT   NOT NULL,
    result   TEXT,
    problem  TEXT,
    ended_ms BIGINT NOT NULL
);
CREATE INDEX last_answers_by_age ON last_answers (ended_ms);
