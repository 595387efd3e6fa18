-- The clock of a turn, over all its attempts.

-- For how long it has worked, in milliseconds: without the time in which it waited for a person, a child or a slot.
ALTER TABLE turns ADD COLUMN worked_ms BIGINT NOT NULL DEFAULT 0;
-- Whether its last attempt was handed back on purpose, by a worker that stopped, and not lost.
ALTER TABLE turns ADD COLUMN handed_back BOOLEAN NOT NULL DEFAULT FALSE;
