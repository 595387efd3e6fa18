-- Sessions, their mailbox (jobs), the turn ledger, messages and workers.
-- Ids are 16 bytes, times whole milliseconds since the epoch, costs billionths of a US dollar.

CREATE TABLE sessions (
    id                     BLOB    NOT NULL PRIMARY KEY,
    agent                  TEXT    NOT NULL,
    engine                 TEXT    NOT NULL,
    model                  TEXT,
    title                  TEXT,
    cwd                    TEXT    NOT NULL,
    metadata               TEXT    NOT NULL,
    archived               INTEGER NOT NULL DEFAULT 0,
    native_session_id      TEXT,
    parent_session_id      BLOB,
    forked_from_message_id INTEGER,
    -- Counts jobs and messages while the row is held: gapless order of arrival.
    last_seq               INTEGER NOT NULL DEFAULT 0,
    message_count          INTEGER NOT NULL DEFAULT 0,
    last_message_id        INTEGER,
    compact_size           INTEGER NOT NULL DEFAULT 0,
    history_version        INTEGER NOT NULL DEFAULT 0,
    input_tokens           INTEGER NOT NULL DEFAULT 0,
    output_tokens          INTEGER NOT NULL DEFAULT 0,
    cache_tokens           INTEGER NOT NULL DEFAULT 0,
    cost_nanos             INTEGER,
    -- The lease: who may run the session. The token only grows.
    lease_worker           BLOB,
    lease_token            INTEGER NOT NULL DEFAULT 0,
    lease_expires_ms       INTEGER NOT NULL DEFAULT 0,
    active_turn_id         BLOB,
    -- The turn that somebody asked to cancel; read with each heartbeat, decided in finish.
    cancel_turn_id         BLOB,
    last_turn_failed       INTEGER NOT NULL DEFAULT 0,
    -- When the session was last put on a queue: the sweeper leaves it alone for a while.
    enqueued_ms            INTEGER NOT NULL DEFAULT 0,
    created_ms             INTEGER NOT NULL,
    updated_ms             INTEGER NOT NULL,
    connected_ms           INTEGER
) STRICT;
CREATE INDEX sessions_by_activity ON sessions (updated_ms, id);
CREATE INDEX sessions_by_lease ON sessions (lease_expires_ms) WHERE lease_worker IS NOT NULL;

CREATE TABLE turns (
    id             BLOB    NOT NULL PRIMARY KEY,
    session_id     BLOB    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state          TEXT    NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'cancelled')),
    attempt        INTEGER NOT NULL,
    worker_id      BLOB    NOT NULL,
    token          INTEGER NOT NULL,
    model          TEXT,
    iterations     INTEGER NOT NULL DEFAULT 0,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_nanos     INTEGER,
    message_id     INTEGER,
    problem        TEXT,
    started_ms     INTEGER NOT NULL,
    ended_ms       INTEGER
) STRICT;
CREATE INDEX turns_by_session ON turns (session_id);

CREATE TABLE messages (
    id              INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    session_id      BLOB    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id         BLOB,
    job_id          BLOB,
    -- Order of arrival: what is displayed, paged and cut.
    seq             INTEGER NOT NULL,
    -- Order of consumption: what the model sees. Equal for messages that were joined into one.
    consumed_seq    INTEGER,
    role            TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    content         TEXT    NOT NULL,
    thinking        TEXT,
    tool_calls      TEXT,
    tool_call_id    TEXT,
    model           TEXT,
    input_tokens    INTEGER,
    output_tokens   INTEGER,
    cache_tokens    INTEGER,
    thinking_tokens INTEGER,
    cost_nanos      INTEGER,
    attachments     TEXT,
    engine_metadata TEXT,
    external_id     TEXT,
    origin          TEXT    NOT NULL,
    cancelled       INTEGER NOT NULL DEFAULT 0,
    created_ms      INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_by_session ON messages (session_id, id);
CREATE INDEX messages_by_consumption ON messages (session_id, consumed_seq) WHERE consumed_seq IS NOT NULL;

CREATE TABLE jobs (
    id              BLOB    NOT NULL PRIMARY KEY,
    session_id      BLOB    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq             INTEGER NOT NULL,
    kind            TEXT    NOT NULL CHECK (kind IN ('chat', 'inject', 'fork', 'trim', 'reset', 'wake')),
    state           TEXT    NOT NULL CHECK (state IN ('pending', 'claimed', 'succeeded', 'failed', 'cancelled')),
    message_id      INTEGER,
    model           TEXT,
    idempotency_key TEXT,
    request_hash    TEXT,
    -- The turn that claimed it. Kept when a dead worker's claim goes back to pending: the next one goes on with it.
    turn_id         BLOB,
    claim_token     INTEGER,
    worker_id       BLOB,
    attempt         INTEGER NOT NULL DEFAULT 0,
    result          TEXT,
    problem         TEXT,
    created_ms      INTEGER NOT NULL,
    started_ms      INTEGER,
    ended_ms        INTEGER
) STRICT;
CREATE UNIQUE INDEX jobs_by_idempotency_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_by_session ON jobs (session_id, seq);
CREATE INDEX jobs_open ON jobs (session_id, seq) WHERE state IN ('pending', 'claimed');
CREATE INDEX jobs_pending ON jobs (session_id) WHERE state = 'pending';
CREATE INDEX jobs_ended ON jobs (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE workers (
    id         BLOB    NOT NULL PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    slots      INTEGER NOT NULL,
    -- What it can run: [{name, engine, model, demo, available, reason}]
    agents     TEXT    NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0,
    started_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT;
