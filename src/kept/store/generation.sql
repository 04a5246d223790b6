-- The tables that a rebuild replaces. A new generation is filled under the prefix `next_` and renamed in one transaction.
-- An index cannot be renamed, so each has the number of its generation in its name.

CREATE TABLE {p}files (
  path       TEXT NOT NULL,
  source     TEXT NOT NULL,
  hash       TEXT NOT NULL,        -- SHA-256 of the bytes; of a transcript, of its lines one after the other
  size       INTEGER NOT NULL,
  mtime_ns   INTEGER NOT NULL,
  ctime_ns   INTEGER NOT NULL,
  checked_ns INTEGER NOT NULL,     -- when it was last read and found to be this
  warning    TEXT,
  mark       TEXT,                 -- how far a transcript is settled, as JSON; NULL for a note
  PRIMARY KEY (source, path)
) WITHOUT ROWID;

-- AUTOINCREMENT: a row's number is never used again, so a packed vector can never be taken for another chunk's.
CREATE TABLE {p}chunks (
  row        INTEGER PRIMARY KEY AUTOINCREMENT,
  id         TEXT NOT NULL UNIQUE, -- SHA-256 of source:path:start:end:hash:model
  source     TEXT NOT NULL,
  path       TEXT NOT NULL,
  start_line INTEGER NOT NULL,
  end_line   INTEGER NOT NULL,
  hash       TEXT NOT NULL,        -- SHA-256 of the text
  embed_hash BLOB NOT NULL,        -- SHA-256 of what is embedded: the key into embedding_cache
  model      TEXT NOT NULL,
  heading    TEXT NOT NULL,
  text       TEXT NOT NULL,
  timestamp  INTEGER NOT NULL,     -- milliseconds
  session_key TEXT,                -- whose conversation; NULL for a note
  channel    TEXT,
  rest_hash  BLOB NOT NULL         -- hash of what the id does not cover: a chunk is unchanged if both are the same
);

-- With the timestamp, so that a list of files or of a time reads none of the texts.
CREATE INDEX chunks_by_path_{n} ON {p}chunks (source, path, start_line, timestamp);
CREATE INDEX chunks_by_session_{n} ON {p}chunks (session_key) WHERE session_key IS NOT NULL;

-- Contentless: the text is in `chunks` once; here are only its words, those of unspaced scripts as pairs.
CREATE VIRTUAL TABLE {p}chunks_fts USING fts5 (
  text, context,
  content = '', contentless_delete = 1,
  tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc So'"
);

CREATE TABLE {p}chunks_vec (
  row  INTEGER PRIMARY KEY,        -- chunks.row
  code BLOB NOT NULL,              -- int8, scaled to the largest component
  pack INTEGER                     -- the pack it is in; NULL until it is in one
);

CREATE INDEX chunks_vec_unpacked_{n} ON {p}chunks_vec (row) WHERE pack IS NULL;
CREATE INDEX chunks_vec_by_pack_{n} ON {p}chunks_vec (pack) WHERE pack IS NOT NULL;

-- Some thousand codes end to end, for scanning. A pack is never changed, only dropped and written again.
CREATE TABLE {p}vec_packs (
  id    INTEGER PRIMARY KEY AUTOINCREMENT,
  rows  BLOB NOT NULL,             -- int64 row numbers
  codes BLOB NOT NULL,             -- int8
  bits  BLOB NOT NULL              -- one sign bit a dimension
);

-- Rows that are still in a pack but no longer in the index.
CREATE TABLE {p}vec_dead (
  row  INTEGER PRIMARY KEY,
  pack INTEGER NOT NULL
);
