-- Engines that keep conversations of their own, and cuts.

-- The native session that a message's anchor (engine_metadata) belongs to: in any other it means nothing.
ALTER TABLE messages ADD COLUMN native_session_id TEXT;
-- A message that a cut has left without an answer, and that the native session does not have: it is sent along in front
-- of the next one.
ALTER TABLE messages ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;
-- The host on which the native session's files are.
ALTER TABLE sessions ADD COLUMN native_host TEXT;
-- What a fork, trim or reset asks for, as JSON.
ALTER TABLE jobs ADD COLUMN request TEXT;

-- Native sessions that are to be deleted once they are due: what a cut has left behind, and the copy that a cut is about
-- to make, which its commit takes off the list.
CREATE TABLE doomed_natives (
    native_session_id TEXT NOT NULL PRIMARY KEY,
    session_id        BLOB NOT NULL,
    agent             TEXT NOT NULL,
    engine            TEXT NOT NULL,
    cwd               TEXT NOT NULL,
    host              TEXT NOT NULL,
    due_ms            INTEGER NOT NULL,
    -- How often somebody has set about it: from then on nothing takes it off the list again.
    attempt           INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX doomed_natives_due ON doomed_natives (host, due_ms);
