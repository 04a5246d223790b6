-- Keyed by what embedded a text and the text alone, so that moving a text or renaming its file finds it again.
CREATE TABLE embedding_cache (
  identity  TEXT NOT NULL,
  hash      BLOB NOT NULL,        -- SHA-256 of what is embedded
  code      BLOB NOT NULL,        -- int8, as in the index
  used_at   INTEGER NOT NULL,     -- seconds; the least recently used go first
  PRIMARY KEY (identity, hash)
);

CREATE INDEX embedding_cache_used_at ON embedding_cache (used_at);
