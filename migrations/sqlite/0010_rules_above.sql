-- The permissions of the agents that have started a session, however far up: a JSON list. A child never has more than those
-- were allowed, on whichever worker it runs.
ALTER TABLE sessions ADD COLUMN rules_above TEXT;
