-- The search index of every workspace of the team. Derived from notes and transcripts, so it can be rebuilt.

-- Each process that writes to a workspace holds the row of the workspace, so there is one writer at a time.
CREATE TABLE workspaces (
  id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       text NOT NULL UNIQUE COLLATE "C",
  live       integer,                     -- the generation that searches read
  version    bigint NOT NULL DEFAULT 0    -- another after every transaction that writes
);

CREATE TABLE workspace_meta (
  workspace  integer NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  key        text NOT NULL COLLATE "C",
  value      text NOT NULL,               -- JSON
  PRIMARY KEY (workspace, key)
);

-- A rebuild fills a new generation beside the live one; the switch is one update of `workspaces`. The tables below have
-- the rows of all generations.
CREATE TABLE generations (
  id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  workspace  integer NOT NULL REFERENCES workspaces ON DELETE CASCADE,
  last_row   integer NOT NULL DEFAULT 0,  -- a row's number is never used again
  segment    integer NOT NULL DEFAULT 0,  -- the last one of `postings`
  pack       integer NOT NULL DEFAULT 0,  -- the last one of `vector_packs`
  chunks     integer NOT NULL DEFAULT 0,  -- sums over all chunks
  text_words bigint NOT NULL DEFAULT 0,
  all_words  bigint NOT NULL DEFAULT 0
);

CREATE TABLE index_files (
  generation integer NOT NULL,
  source     text NOT NULL COLLATE "C",
  path       text NOT NULL COLLATE "C",
  host       text NOT NULL COLLATE "C",   -- who has it: empty for notes, which every host of the workspace has
  hash       text NOT NULL COLLATE "C",
  size       bigint NOT NULL,
  mtime_ns   bigint NOT NULL,
  ctime_ns   bigint NOT NULL,
  checked_ns bigint NOT NULL,
  warning    text,
  mark       text,
  PRIMARY KEY (generation, source, path)
);

-- Texts are bytes in UTF-8: PostgreSQL's own type for text cannot hold every character.
CREATE TABLE chunks (
  generation integer NOT NULL,
  row        integer NOT NULL,
  source     text NOT NULL COLLATE "C",
  path       text NOT NULL COLLATE "C",
  start_line integer NOT NULL,
  end_line   integer NOT NULL,
  hash       bytea NOT NULL,              -- SHA-256 of the text
  embed_hash bytea NOT NULL,              -- SHA-256 of what is embedded: the key into embedding_cache
  heading    bytea NOT NULL,
  text       bytea NOT NULL,
  timestamp  bigint NOT NULL,             -- milliseconds
  session_key text COLLATE "C",
  channel    text COLLATE "C",
  recalled   smallint NOT NULL,
  content_key bytea NOT NULL,
  stems      bytea NOT NULL,              -- each of its stems once, separated by spaces
  text_words integer NOT NULL,
  all_words  integer NOT NULL,
  PRIMARY KEY (generation, row)
);

CREATE INDEX chunks_by_path ON chunks (generation, source, path, start_line) INCLUDE (timestamp);
CREATE INDEX chunks_by_session ON chunks (generation, session_key) WHERE session_key IS NOT NULL;
CREATE INDEX chunks_by_embed_hash ON chunks USING hash (embed_hash);

-- Where each stem occurs. A transaction adds a segment; segments are merged from time to time. An entry is an int64 in
-- little-endian: the row, a bit for the context, and the position in 32 bits, in ascending order.
CREATE TABLE postings (
  generation integer NOT NULL,
  stem       text NOT NULL COLLATE "C",
  segment    integer NOT NULL,
  docs       integer NOT NULL,            -- chunks that came with the segment and have the stem, less those that went
  entries    bytea NOT NULL,
  PRIMARY KEY (generation, stem, segment)
);

CREATE TABLE segments (
  generation integer NOT NULL,
  segment    integer NOT NULL,
  level      smallint NOT NULL,           -- 0 of one transaction, 1 of several, 2 of all
  rows       bytea NOT NULL,              -- int32: the chunks that came with it, and how many words each has
  text_words bytea NOT NULL,
  all_words  bytea NOT NULL,
  PRIMARY KEY (generation, segment)
);

-- Rows that are gone but still in segments or packs.
CREATE TABLE dead_rows (
  generation integer NOT NULL,
  row        integer NOT NULL,
  PRIMARY KEY (generation, row)
);

CREATE TABLE chunk_vectors (
  generation integer NOT NULL,
  row        integer NOT NULL,
  code       bytea NOT NULL,              -- int8, scaled to the largest component
  PRIMARY KEY (generation, row)
);

-- Vectors that are in no pack yet.
CREATE TABLE loose_vectors (
  generation integer NOT NULL,
  row        integer NOT NULL,
  PRIMARY KEY (generation, row)
);

-- Some thousand vectors that a process reads together. A pack is never changed.
CREATE TABLE vector_packs (
  generation integer NOT NULL,
  id         integer NOT NULL,
  count      integer NOT NULL,
  rows       bytea NOT NULL,              -- int64
  codes      bytea NOT NULL,
  bits       bytea NOT NULL,              -- a sign bit for each dimension
  PRIMARY KEY (generation, id)
);

CREATE TABLE notes (
  generation integer NOT NULL,
  path       text NOT NULL COLLATE "C",
  title      text NOT NULL,
  timestamp  bigint NOT NULL,
  dated      boolean NOT NULL,
  updated    bigint,
  PRIMARY KEY (generation, path)
);

CREATE TABLE note_names (
  generation integer NOT NULL,
  key        text NOT NULL COLLATE "C",
  path       text NOT NULL COLLATE "C",
  kind       smallint NOT NULL,
  name       text NOT NULL COLLATE "C"
);

-- A name may be longer than an entry of a B-tree can be, so it is found by its beginning.
CREATE INDEX note_names_by_key ON note_names (generation, left(key, 200));
CREATE INDEX note_names_by_path ON note_names (generation, path);

CREATE TABLE note_tags (
  generation integer NOT NULL,
  key        text NOT NULL COLLATE "C",
  path       text NOT NULL COLLATE "C",
  first_line bigint NOT NULL,
  last_line  bigint NOT NULL,
  tag        text NOT NULL COLLATE "C"
);

CREATE INDEX note_tags_by_key ON note_tags (generation, left(key, 200));
CREATE INDEX note_tags_by_path ON note_tags (generation, path);

CREATE TABLE note_links (
  generation integer NOT NULL,
  path       text NOT NULL COLLATE "C",
  line       integer NOT NULL,
  number     integer NOT NULL,
  key        text NOT NULL COLLATE "C",
  target     text NOT NULL,
  heading    text NOT NULL,
  label      text NOT NULL,
  embed      boolean NOT NULL,
  by_path    boolean NOT NULL
);

CREATE INDEX note_links_by_key ON note_links (generation, left(key, 200));
CREATE INDEX note_links_by_path ON note_links (generation, path);

-- Shared by all workspaces of the team, so that each text is paid for once.
CREATE TABLE embedding_cache (
  identity   text NOT NULL COLLATE "C",
  hash       bytea NOT NULL,
  code       bytea NOT NULL,              -- int8
  used_at    bigint NOT NULL,             -- seconds; the least recently used go first
  PRIMARY KEY (identity, hash)
);

CREATE INDEX embedding_cache_by_use ON embedding_cache (used_at);
