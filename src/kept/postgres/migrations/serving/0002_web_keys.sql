-- What the pages of several machines need to be one site: the key that signs cookies and forms, and the one-time links
-- that were used.

CREATE TABLE web_keys (
  agent text PRIMARY KEY COLLATE "C",
  key   bytea NOT NULL
);

CREATE TABLE used_links (
  agent   text NOT NULL COLLATE "C",
  link    text NOT NULL COLLATE "C",
  expires timestamptz NOT NULL,
  PRIMARY KEY (agent, link)
);

-- Whoever has the key can make a cookie that opens all pages. So roles that may only read must not have it.
DO $$
DECLARE reader text;
BEGIN
  FOR reader IN
    SELECT quote_ident(pg_get_userbyid(rights.grantee))
      FROM pg_class, aclexplode(relacl) AS rights
     WHERE pg_class.oid = 'web_keys'::regclass AND rights.grantee <> 0 AND rights.grantee <> relowner
     GROUP BY rights.grantee
    HAVING NOT bool_or(rights.privilege_type = 'INSERT')
  LOOP
    EXECUTE 'REVOKE ALL ON web_keys FROM ' || reader;
  END LOOP;
END
$$;
