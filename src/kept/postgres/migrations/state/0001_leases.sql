-- What one process of the team may do at a time, such as answering a conversation or leading a live index. A lease ends
-- at its time unless its owner renews it. All times are those of the database, since the clocks of hosts differ.

CREATE TABLE leases (
  name    text PRIMARY KEY COLLATE "C",
  owner   text NOT NULL COLLATE "C",    -- a process: its host, its number and a random part
  expires timestamptz NOT NULL
);
