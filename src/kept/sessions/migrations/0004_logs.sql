-- Transcripts are logs of a storage, which tells their states. Every row is read from its transcript again.

DELETE FROM sessions;
ALTER TABLE sessions RENAME COLUMN file TO log;
ALTER TABLE sessions RENAME COLUMN inode TO generation;
ALTER TABLE sessions DROP COLUMN mtime_ns;
ALTER TABLE sessions DROP COLUMN tail_hash;
ALTER TABLE sessions ADD COLUMN last_line TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN last_id TEXT;
ALTER TABLE sessions ADD COLUMN offset INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN log_state TEXT NOT NULL DEFAULT '';
