-- A lease lasts as long as its worker: the worker's row has the expiry, and a session names worker and token only.
-- No release has read the session's expiry, so it goes at once.

DROP INDEX sessions_by_lease;
ALTER TABLE sessions DROP COLUMN lease_expires_ms;
CREATE INDEX sessions_by_worker ON sessions (lease_worker, id) WHERE lease_worker IS NOT NULL;

-- Counts the renewals: a reaper compares it, and not times, to see whether the worker lives.
ALTER TABLE workers ADD COLUMN beats BIGINT NOT NULL DEFAULT 0;
-- When the worker was declared dead. Set once: this row can never be renewed again.
ALTER TABLE workers ADD COLUMN dead_ms BIGINT;
