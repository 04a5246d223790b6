-- The catalogue: a row for each transcript, all of it read from that transcript.

CREATE TABLE sessions (
  file              TEXT PRIMARY KEY,    -- the transcript's name in its folder
  id                TEXT NOT NULL,
  version           INTEGER NOT NULL,
  key               TEXT NOT NULL,       -- '' when the first line is lost
  channel           TEXT NOT NULL,
  account_id        TEXT NOT NULL,
  chat_type         TEXT NOT NULL,
  user_id           TEXT NOT NULL,
  created_ms        INTEGER NOT NULL,
  updated_ms        INTEGER NOT NULL,    -- the last entry
  active_ms         INTEGER NOT NULL,    -- the last message
  messages          INTEGER NOT NULL,
  tokens_in         INTEGER NOT NULL,
  tokens_out        INTEGER NOT NULL,
  tokens_context    INTEGER NOT NULL,
  compactions       INTEGER NOT NULL,
  flushes           INTEGER NOT NULL,
  flushed_ms        INTEGER,
  flush_compactions INTEGER,             -- how many compactions there had been at the last flush
  predecessor       TEXT,
  successor         TEXT,
  ended_ms          INTEGER,
  end_reason        TEXT,
  state             TEXT NOT NULL,       -- JSON
  metadata          TEXT NOT NULL,       -- JSON
  damaged_lines     INTEGER NOT NULL,
  -- How far the transcript has been read, and what it was like then.
  lines             INTEGER NOT NULL,
  size              INTEGER NOT NULL,
  inode             INTEGER NOT NULL,
  mtime_ns          INTEGER NOT NULL,
  seam              INTEGER NOT NULL     -- hash of the last bytes that were read: what follows them is new
);

CREATE INDEX sessions_id ON sessions (id);
CREATE INDEX sessions_key ON sessions (key, created_ms);
CREATE INDEX sessions_updated ON sessions (updated_ms);
