-- The messages that the gateways of a team have accepted, and what became of them.

-- Whoever changes the inbox of an agent locks its row. So records have no gaps, and become visible in their order.
CREATE TABLE inboxes (
  agent text PRIMARY KEY COLLATE "C",
  seq   bigint NOT NULL DEFAULT 0,      -- the last record
  epoch integer NOT NULL DEFAULT 0      -- how often all records were replaced
);

CREATE TABLE inbox_records (
  agent   text NOT NULL COLLATE "C",
  seq     bigint NOT NULL,
  kind    text NOT NULL,
  channel text COLLATE "C",             -- of a message
  name    text NOT NULL COLLATE "C",    -- id of the message or of the answer run
  record  text NOT NULL,                -- JSON in ASCII; text, since jsonb has neither \u0000 nor half a surrogate pair
  PRIMARY KEY (agent, seq)
);

CREATE UNIQUE INDEX inbox_records_messages ON inbox_records (agent, channel, name) WHERE kind = 'received';
CREATE INDEX inbox_records_names ON inbox_records (agent, name);

-- Which process answers a conversation: all of its messages, in order. It does so until its lease ends.
CREATE TABLE conversations (
  agent text NOT NULL COLLATE "C",
  key   text NOT NULL COLLATE "C",
  owner text NOT NULL COLLATE "C",
  PRIMARY KEY (agent, key)
);
