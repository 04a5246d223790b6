-- Small documents that hosts share, such as the schedules of an agent.

CREATE TABLE documents (
  agent   text NOT NULL COLLATE "C",
  name    text NOT NULL COLLATE "C",
  content text NOT NULL,                -- JSON
  PRIMARY KEY (agent, name)
);

-- Usage of embedders and chat models of all hosts. Entries with the same texts are added up.

CREATE TABLE ledger_entries (
  id    bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  agent text NOT NULL COLLATE "C",
  kind  text NOT NULL COLLATE "C",
  entry text NOT NULL                   -- JSON in ASCII
);

CREATE INDEX ledger_entries_agent ON ledger_entries (agent, kind);
