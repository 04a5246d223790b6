-- Files of workspaces whose home is the database: notes, what waits for review, and the history of the notes. They are
-- canonical. The folder of a machine is a copy of them.

-- Whoever changes files of a workspace holds its row, so the numbers of changes become visible in their order.
CREATE TABLE file_workspaces (
  id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name      text NOT NULL UNIQUE COLLATE "C",
  token     text NOT NULL DEFAULT gen_random_uuid(),  -- tells copies of another workspace with the same name apart
  seq       bigint NOT NULL DEFAULT 0,                -- the last change
  erasures  bigint NOT NULL DEFAULT 0                 -- forgets so far
);

CREATE TABLE files (
  workspace integer NOT NULL REFERENCES file_workspaces ON DELETE CASCADE,
  path      text NOT NULL COLLATE "C",
  version   integer NOT NULL,
  seq       bigint NOT NULL,             -- the change that made this version
  sha256    text COLLATE "C",            -- NULL if the file was removed
  content   bytea,
  host      text NOT NULL,               -- the machine that wrote it
  changed   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (workspace, path)
);

CREATE INDEX files_by_seq ON files (workspace, seq);

-- Earlier versions, as long as a machine may have one that it has changed since: they are what both sides began with.
CREATE TABLE file_versions (
  workspace integer NOT NULL REFERENCES file_workspaces ON DELETE CASCADE,
  path      text NOT NULL COLLATE "C",
  version   integer NOT NULL,
  sha256    text NOT NULL COLLATE "C",
  content   bytea NOT NULL,
  is_hashed boolean NOT NULL DEFAULT false,  -- a text in it was forgotten: content has hashes of its lines
  replaced  bigint NOT NULL,             -- the change that replaced it
  PRIMARY KEY (workspace, path, version)
);

CREATE INDEX file_versions_by_change ON file_versions (workspace, replaced);

-- The last change that each machine has seen.
CREATE TABLE file_copies (
  workspace integer NOT NULL REFERENCES file_workspaces ON DELETE CASCADE,
  machine   text NOT NULL COLLATE "C",
  host      text NOT NULL,
  seen      bigint NOT NULL,
  seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (workspace, machine)
);

-- Files that grow, such as the history: pieces in the order in which they were appended. A file that was written anew
-- has another epoch.
CREATE TABLE grown_files (
  workspace integer NOT NULL REFERENCES file_workspaces ON DELETE CASCADE,
  path      text NOT NULL COLLATE "C",
  epoch     integer NOT NULL,
  size      bigint NOT NULL,             -- -1 if the file was removed
  seq       bigint NOT NULL,
  host      text NOT NULL,
  PRIMARY KEY (workspace, path)
);

CREATE INDEX grown_files_by_seq ON grown_files (workspace, seq);

CREATE TABLE file_pieces (
  workspace integer NOT NULL REFERENCES file_workspaces ON DELETE CASCADE,
  path      text NOT NULL COLLATE "C",
  start     bigint NOT NULL,
  data      bytea NOT NULL,
  PRIMARY KEY (workspace, path, start)
);
