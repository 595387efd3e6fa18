-- The last write of a run that may be repeated, because nobody knows whether its commit went through, and what it came to.
ALTER TABLE sessions ADD COLUMN last_step BLOB;
ALTER TABLE sessions ADD COLUMN step_receipt TEXT;
