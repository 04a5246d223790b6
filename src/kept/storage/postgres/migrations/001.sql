-- What is kept: documents and logs of many roots, one for each workspace, agent and installation.
-- Text is compared by its bytes (COLLATE "C"), so that no locale of a server changes an order.

CREATE TABLE kept.roots (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    -- Number of the last commit. A commit updates it first, so the lock of this row puts commits of a root in order.
    version bigint NOT NULL DEFAULT 0
);

CREATE TABLE kept.documents (
    root bigint NOT NULL REFERENCES kept.roots ON DELETE CASCADE,
    path text COLLATE "C" NOT NULL,
    -- NULL for a document that was removed: readers that follow by cursor must hear of it.
    data bytea,
    version text NOT NULL,
    changed bigint NOT NULL,
    modified_ns bigint NOT NULL,
    PRIMARY KEY (root, path)
);
CREATE INDEX documents_changed ON kept.documents (root, changed);

CREATE TABLE kept.logs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    root bigint NOT NULL REFERENCES kept.roots ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    -- Position of the first line, which a rewrite moves to the end of before, and position after the last one.
    first bigint NOT NULL DEFAULT 0,
    stop bigint NOT NULL DEFAULT 0,
    -- How often lines were blanked, rewritten or removed. The row of a removed log stays, so that it never counts back.
    generation bigint NOT NULL DEFAULT 0,
    is_removed boolean NOT NULL DEFAULT false,
    changed bigint NOT NULL,
    modified_ns bigint NOT NULL,
    UNIQUE (root, name)
);

CREATE TABLE kept.log_lines (
    log bigint NOT NULL REFERENCES kept.logs ON DELETE CASCADE,
    start bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (log, start)
);

CREATE TABLE kept.leases (
    root bigint NOT NULL REFERENCES kept.roots ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (root, name)
);

CREATE TABLE kept.receipts (
    root bigint NOT NULL REFERENCES kept.roots ON DELETE CASCADE,
    commit_id text COLLATE "C" NOT NULL,
    receipt bytea NOT NULL,
    committed timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (root, commit_id)
);
CREATE INDEX receipts_committed ON kept.receipts (root, committed);
