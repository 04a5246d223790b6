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

-- AUTOINCREMENT: a row's number is never used again, so a vector in memory can never be taken for another chunk's.
CREATE TABLE {p}chunks (
  row        INTEGER PRIMARY KEY AUTOINCREMENT,
  source     TEXT NOT NULL,
  path       TEXT NOT NULL,
  start_line INTEGER NOT NULL,
  end_line   INTEGER NOT NULL,
  hash       BLOB NOT NULL,        -- SHA-256 of the text
  embed_hash BLOB NOT NULL,        -- SHA-256 of what is embedded: the key into the embedding cache
  heading    TEXT NOT NULL,
  text       TEXT NOT NULL,
  timestamp  INTEGER NOT NULL,     -- milliseconds
  session_key TEXT,                -- whose conversation; NULL for a note
  channel    TEXT,
  recalled   INTEGER NOT NULL,     -- 1 for an answer that an agent gave from memory
  content_key BLOB NOT NULL        -- hash of all that was given for it: a chunk with the same key is unchanged
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
  code BLOB NOT NULL               -- int8, scaled to the largest component
);

-- Counted, and compared with what is in memory, without reading the codes.
CREATE INDEX chunks_vec_by_size_{n} ON {p}chunks_vec (length(code));

-- What a note says of itself. Each of these tables is read by `kept list`, `kept get --links` and filters, without its files.
CREATE TABLE {p}notes (
  path       TEXT PRIMARY KEY,
  title      TEXT NOT NULL,        -- in the properties, else the first heading, else the name of the file
  timestamp  INTEGER NOT NULL,     -- when it was written, milliseconds
  dated      INTEGER NOT NULL,     -- 1 if the note or its name gives that time, 0 if it is that of the file
  updated    INTEGER               -- `updated` of its properties, milliseconds
) WITHOUT ROWID;

CREATE TABLE {p}note_names (
  key        TEXT NOT NULL,        -- the name, folded
  path       TEXT NOT NULL,
  kind       INTEGER NOT NULL,     -- 0 its file, 1 title, 2 alias, 3 first heading
  name       TEXT NOT NULL,
  PRIMARY KEY (key, path, kind)
) WITHOUT ROWID;

CREATE INDEX note_names_by_path_{n} ON {p}note_names (path);

-- A tag and every tag above it: #area/home is also stored as area.
CREATE TABLE {p}note_tags (
  key        TEXT NOT NULL,        -- the tag, folded
  path       TEXT NOT NULL,
  first_line INTEGER NOT NULL,     -- the passages that have it: all, or in a daily note those of its entry
  last_line  INTEGER NOT NULL,
  tag        TEXT NOT NULL,        -- as it is written
  PRIMARY KEY (key, path, first_line)
) WITHOUT ROWID;

CREATE INDEX note_tags_by_path_{n} ON {p}note_tags (path);

CREATE TABLE {p}note_links (
  path       TEXT NOT NULL,
  line       INTEGER NOT NULL,
  number     INTEGER NOT NULL,     -- position among the links of the note
  key        TEXT NOT NULL,        -- the last part of the target, folded
  target     TEXT NOT NULL,        -- as it is written, without its ending; resolved when it is read
  heading    TEXT NOT NULL,
  label      TEXT NOT NULL,
  embed      INTEGER NOT NULL,
  by_path    INTEGER NOT NULL,     -- 1 for a Markdown link, whose target is relative to its note
  PRIMARY KEY (path, number)
) WITHOUT ROWID;

CREATE INDEX note_links_by_key_{n} ON {p}note_links (key);
