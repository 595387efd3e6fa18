-- The agent loop: questions to people, and children that wake their parents.

CREATE TABLE interactions (
    id          BLOB NOT NULL PRIMARY KEY,
    session_id  BLOB NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id     BLOB NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('permission', 'question', 'plan')),
    state       TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'cancelled', 'superseded')),
    payload     TEXT NOT NULL,
    answer      TEXT,
    created_ms  INTEGER NOT NULL,
    expires_ms  INTEGER NOT NULL,
    resolved_ms INTEGER
) STRICT;
CREATE INDEX interactions_by_session ON interactions (session_id, state);

-- The session that is woken when this job ends, as long as the message that asked for it is still there.
ALTER TABLE jobs ADD COLUMN wakes_session_id BLOB;
ALTER TABLE jobs ADD COLUMN wakes_message_id INTEGER;
-- The ended job that a wake job tells of: each is told once.
ALTER TABLE jobs ADD COLUMN woken_by BLOB;
CREATE UNIQUE INDEX jobs_by_waker ON jobs (woken_by) WHERE woken_by IS NOT NULL;
