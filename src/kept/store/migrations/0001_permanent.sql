-- What outlives a rebuild of the index.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- Keyed by what embedded a text and the text alone, so that moving a text or renaming its file finds it again.
CREATE TABLE embedding_cache (
  identity  TEXT NOT NULL,
  hash      BLOB NOT NULL,
  embedding BLOB NOT NULL,        -- float32, little-endian, unit length
  dims      INTEGER NOT NULL,
  used_at   INTEGER NOT NULL,     -- seconds; the least recently used go first
  PRIMARY KEY (identity, hash)
);

CREATE INDEX embedding_cache_used_at ON embedding_cache (used_at);
