-- Sessions of all machines: what the catalogue of each knows of its own. Derived from the transcripts, which are files.

CREATE TABLE session_records (
  agent      text   NOT NULL COLLATE "C",
  machine    text   NOT NULL COLLATE "C",   -- random name of the machine, which alone writes the row
  file       text   NOT NULL COLLATE "C",   -- name of the transcript
  host       text   NOT NULL,               -- name of the machine for people
  session_id text   NOT NULL COLLATE "C",
  channel    text   NOT NULL,
  updated_ms bigint NOT NULL,
  stamp      text   NOT NULL,               -- state of the transcript that the row was made from
  is_deleted boolean NOT NULL,              -- deleted by a person; the record then has no text
  record     text   NOT NULL,               -- JSON in ASCII
  PRIMARY KEY (agent, machine, file)
);

CREATE INDEX session_records_id ON session_records (agent, session_id text_pattern_ops);
CREATE INDEX session_records_updated ON session_records (agent, updated_ms);
