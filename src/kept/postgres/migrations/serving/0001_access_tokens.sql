-- Tokens of the clients of `kept serve`. There is no secret here: a secret has 256 random bits, and this is its hash.

CREATE TABLE access_tokens (
  id        text PRIMARY KEY COLLATE "C",
  position  bigint NOT NULL GENERATED ALWAYS AS IDENTITY,   -- in the order in which they were created
  name      text NOT NULL COLLATE "C",
  digest    text NOT NULL UNIQUE COLLATE "C",               -- SHA-256 of the token, in hexadecimal digits
  scopes    text[] NOT NULL,
  agent     text COLLATE "C",
  person    text COLLATE "C",
  workspace text COLLATE "C",
  created   timestamptz NOT NULL,
  expires   timestamptz,
  revoked   timestamptz
);

-- One row. Whoever changes tokens locks it and raises the number, so a machine need not read all tokens to see whether
-- they are still the same.
CREATE TABLE token_version (
  number bigint NOT NULL
);

INSERT INTO token_version VALUES (0);
