-- What a turn that was cut off leaves to whoever goes on with it, or after it.

-- When the run that had asked a person took the answer, or the lack of one. Until then the call that it is about has not
-- begun, and the answer can still be used.
ALTER TABLE interactions ADD COLUMN taken_ms INTEGER;
UPDATE interactions SET taken_ms = resolved_ms;
-- The turn that waits for this job of a child: with its end nobody does.
ALTER TABLE jobs ADD COLUMN waited_by_turn_id BLOB;
CREATE INDEX jobs_by_waiting_turn ON jobs (waited_by_turn_id)
    WHERE waited_by_turn_id IS NOT NULL AND state IN ('pending', 'claimed');
-- The engine had this before the turn ended that claimed it: it comes before whatever the engine has not.
ALTER TABLE jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
