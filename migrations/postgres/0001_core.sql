-- Sessions, their mailbox (jobs), the turn ledger, messages and workers.
-- Ids are 16 bytes, times whole milliseconds since the epoch, costs billionths of a US dollar.

CREATE TABLE sessions (
    id                     UUID    NOT NULL PRIMARY KEY,
    agent                  TEXT    NOT NULL,
    engine                 TEXT    NOT NULL,
    model                  TEXT,
    title                  TEXT,
    cwd                    TEXT    NOT NULL,
    metadata               TEXT    NOT NULL,
    archived               BOOLEAN NOT NULL DEFAULT FALSE,
    native_session_id      TEXT,
    parent_session_id      UUID,
    forked_from_message_id BIGINT,
    -- Counts jobs and messages while the row is held: gapless order of arrival.
    last_seq               BIGINT  NOT NULL DEFAULT 0,
    message_count          BIGINT  NOT NULL DEFAULT 0,
    last_message_id        BIGINT,
    compact_size           BIGINT  NOT NULL DEFAULT 0,
    history_version        BIGINT  NOT NULL DEFAULT 0,
    input_tokens           BIGINT  NOT NULL DEFAULT 0,
    output_tokens          BIGINT  NOT NULL DEFAULT 0,
    cache_tokens           BIGINT  NOT NULL DEFAULT 0,
    cost_nanos             BIGINT,
    -- The lease: who may run the session. The token only grows.
    lease_worker           UUID,
    lease_token            BIGINT  NOT NULL DEFAULT 0,
    lease_expires_ms       BIGINT  NOT NULL DEFAULT 0,
    active_turn_id         UUID,
    -- The turn that somebody asked to cancel; read with each heartbeat, decided in finish.
    cancel_turn_id         UUID,
    last_turn_failed       BOOLEAN NOT NULL DEFAULT FALSE,
    -- When the session was last put on a queue: the sweeper leaves it alone for a while.
    enqueued_ms            BIGINT  NOT NULL DEFAULT 0,
    created_ms             BIGINT  NOT NULL,
    updated_ms             BIGINT  NOT NULL,
    connected_ms           BIGINT
);
CREATE INDEX sessions_by_activity ON sessions (updated_ms, id);
CREATE INDEX sessions_by_lease ON sessions (lease_expires_ms) WHERE lease_worker IS NOT NULL;

CREATE TABLE turns (
    id             UUID    NOT NULL PRIMARY KEY,
    session_id     UUID    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state          TEXT    NOT NULL CHECK (state IN ('running', 'completed', 'failed', 'cancelled')),
    attempt        BIGINT  NOT NULL,
    worker_id      UUID    NOT NULL,
    token          BIGINT  NOT NULL,
    model          TEXT,
    iterations     BIGINT  NOT NULL DEFAULT 0,
    input_tokens   BIGINT  NOT NULL DEFAULT 0,
    output_tokens  BIGINT  NOT NULL DEFAULT 0,
    cache_tokens   BIGINT  NOT NULL DEFAULT 0,
    cost_nanos     BIGINT,
    message_id     BIGINT,
    problem        TEXT,
    started_ms     BIGINT  NOT NULL,
    ended_ms       BIGINT
);
CREATE INDEX turns_by_session ON turns (session_id);

CREATE TABLE messages (
    id              BIGINT  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id      UUID    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id         UUID,
    job_id          UUID,
    -- Order of arrival: what is displayed, paged and cut.
    seq             BIGINT  NOT NULL,
    -- Order of consumption: what the model sees. Equal for messages that were joined into one.
    consumed_seq    BIGINT,
    role            TEXT    NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    content         TEXT    NOT NULL,
    thinking        TEXT,
    tool_calls      TEXT,
    tool_call_id    TEXT,
    model           TEXT,
    input_tokens    BIGINT,
    output_tokens   BIGINT,
    cache_tokens    BIGINT,
    thinking_tokens BIGINT,
    cost_nanos      BIGINT,
    attachments     TEXT,
    engine_metadata TEXT,
    external_id     TEXT,
    origin          TEXT    NOT NULL,
    cancelled       BOOLEAN NOT NULL DEFAULT FALSE,
    created_ms      BIGINT  NOT NULL
);
CREATE UNIQUE INDEX messages_by_session ON messages (session_id, id);
CREATE INDEX messages_by_consumption ON messages (session_id, consumed_seq) WHERE consumed_seq IS NOT NULL;

CREATE TABLE jobs (
    id              UUID    NOT NULL PRIMARY KEY,
    session_id      UUID    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq             BIGINT  NOT NULL,
    kind            TEXT    NOT NULL CHECK (kind IN ('chat', 'inject', 'fork', 'trim', 'reset', 'wake')),
    state           TEXT    NOT NULL CHECK (state IN ('pending', 'claimed', 'succeeded', 'failed', 'cancelled')),
    message_id      BIGINT,
    model           TEXT,
    idempotency_key TEXT,
    request_hash    TEXT,
    -- The turn that claimed it. Kept when a dead worker's claim goes back to pending: the next one goes on with it.
    turn_id         UUID,
    claim_token     BIGINT,
    worker_id       UUID,
    attempt         BIGINT  NOT NULL DEFAULT 0,
    result          TEXT,
    problem         TEXT,
    created_ms      BIGINT  NOT NULL,
    started_ms      BIGINT,
    ended_ms        BIGINT
);
CREATE UNIQUE INDEX jobs_by_idempotency_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_by_session ON jobs (session_id, seq);
CREATE INDEX jobs_open ON jobs (session_id, seq) WHERE state IN ('pending', 'claimed');
CREATE INDEX jobs_pending ON jobs (session_id) WHERE state = 'pending';
CREATE INDEX jobs_ended ON jobs (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE workers (
    id         UUID    NOT NULL PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        BIGINT  NOT NULL,
    version    TEXT    NOT NULL,
    slots      BIGINT  NOT NULL,
    -- What it can run: [{name, engine, model, demo, available, reason}]
    agents     TEXT    NOT NULL,
    stopping   BOOLEAN NOT NULL DEFAULT FALSE,
    started_ms BIGINT  NOT NULL,
    seen_ms    BIGINT  NOT NULL,
    expires_ms BIGINT  NOT NULL
);
