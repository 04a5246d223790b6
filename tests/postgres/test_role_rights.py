"""kept store grant, revoke and drop: what the roles of teams may do, on a real server."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest

from kept.postgres.open_database import close_databases
from tests.support.json_schema import check
from tests.support.teams import Team
from tests.support.terminals import run_on_terminal, without_styles
from tests.support.workspaces import write_note

URL = "KEPT_MEMORY_SEARCH__STORE__URL"
SCHEMA = "KEPT_MEMORY_SEARCH__STORE__SCHEMA"


@pytest.fixture
def role(postgres_server):
    """A role that may log in, with a name that needs quotes."""
    name = f'R"ole; {os.urandom(4).hex()}'
    quoted = '"' + name.replace('"', '""') + '"'
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE ROLE {quoted} LOGIN")
        yield name
        connection.execute(f"DROP OWNED BY {quoted}")
        connection.execute(f"DROP ROLE {quoted}")


@pytest.fixture
def as_role(team, role):
    """Environment of a host that logs in as the role."""
    yield {URL: team.server.url.replace("postgres@", f"{quote(role, safe='')}@")}
    close_databases()


def test_a_role_uses_the_schema_of_its_team_and_no_other(kept, team, role, as_role, workspace):
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    refused = kept("search", "heron", env=as_role)
    assert refused.code == 6
    assert "has no rights on the schema" in refused.err
    for _ in range(2):  # the second changes nothing
        granted = kept("store", "grant", role, "--json")
        check("store grant", granted.json)
        assert granted.json == {"schema": team.schema, "role": role, "rights": "write"}
    assert kept("search", "heron", "--json", env=as_role).json["results"]
    other = Team(team.server)
    try:
        assert "has no rights" in kept("search", "heron", env={**as_role, SCHEMA: other.schema}).err
        with team.database.unchecked() as connection:
            query = "SELECT has_schema_privilege(%s, %s, 'USAGE') OR has_table_privilege(%s, %s, 'SELECT')"
            rows = connection.execute(query, [role, other.schema, role, f"{other.schema}.chunks"]).fetchall()
        assert rows == [(False,)]
    finally:
        team.server.drop_schema(other.schema)
    revoked = kept("store", "revoke", role, "--json")
    check("store revoke", revoked.json)
    assert revoked.json["rights"] == "none"
    assert "has no rights" in kept("search", "heron", env=as_role).err


def test_a_role_that_may_only_read_searches_and_does_not_index(kept, team, role, as_role, workspace):
    kept("store", "grant", role)
    kept("store", "grant", role, "--read-only")
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    unindexed = kept("search", "heron", env=as_role)
    assert (unindexed.code, "may only read" in unindexed.err) == (6, True)
    assert kept("index").code == 0
    found = kept("search", "heron", "--json", env=as_role).json
    assert (len(found["results"]), found["degraded"]) == (1, [])
    write_note(workspace, "memory/b.md", "A kingfisher dives.\n")
    found = kept("search", "kingfisher", "--json", env=as_role).json
    assert "may only read" in found["degraded"][0]
    refused = kept("index", env=as_role)
    assert refused.code == 6
    assert "may only read the team's database" in refused.err
    assert kept("add", "The otter swims.", env=as_role).code == 0
    assert kept("search", "otter", "--json").json["results"]


def test_tables_of_a_later_version_are_covered_and_forgetting_can_rewrite(kept, team, role, as_role, workspace):
    kept("store", "grant", role)
    with team.database.unchecked() as connection:
        connection.execute("CREATE TABLE later (id bigint GENERATED ALWAYS AS IDENTITY, text text)")
        query = "SELECT has_table_privilege(%s, 'later', 'INSERT'), has_sequence_privilege(%s, 'later_id_seq', 'USAGE')"
        assert connection.execute(query, [role, role]).fetchall() == [(True, True)]
    write_note(workspace, "memory/a.md", "- The heron stands still.\n- The codeword is zanzibarium.\n")
    assert kept("search", "zanzibarium", env=as_role).code == 0
    assert kept("forget", "zanzibarium", "--yes", env=as_role).code == 0
    with team.database.unchecked() as connection:
        identifier = connection.execute("SELECT quote_ident(%s)", [role]).fetchone()[0]
        connection.execute(f"REVOKE MAINTAIN ON ALL TABLES IN SCHEMA {team.schema} FROM {identifier}")
    write_note(workspace, "memory/a.md", "- The heron stands still.\n- The codeword is quetzalium.\n")
    assert kept("search", "quetzalium", env=as_role).code == 0
    left = kept("forget", "quetzalium", "--yes", env=as_role)
    assert left.code == 1
    assert "may not rewrite its tables" in left.out + left.err


def test_rights_that_cannot_be_given_are_refused(kept, team, role, as_role):
    for name, reason in (("nobody-has-it", "no role"), ("public", "no role"), ("postgres", "owns the schema")):
        refused = kept("store", "grant", name)
        assert (refused.code, reason in refused.err) == (2, True)
    kept("store", "grant", role)
    with team.server.connect() as connection:
        identifier = connection.execute("SELECT quote_ident(%s)", [role]).fetchone()[0]
        connection.execute(f"ALTER ROLE {identifier} SUPERUSER")
        refused = kept("store", "grant", role, "--read-only")
        assert (refused.code, "may write all the same" in refused.err) == (2, True)
        left = kept("store", "revoke", role)
        assert (left.code, "may still write" in left.err) == (6, True)
        connection.execute(f"ALTER ROLE {identifier} NOSUPERUSER")
    kept("store", "grant", role)
    for arguments in (("grant", "postgres"), ("revoke", role), ("drop", "--yes", team.schema)):
        refused = kept("store", *arguments, env=as_role)
        assert (refused.code, "belongs to the role 'postgres'" in refused.err) == (6, True)


def test_a_team_is_erased_only_by_its_name(kept, team, environment, workspace):
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    assert kept("index").code == 0
    assert (kept("store", "drop").code, kept("store", "drop", "--yes", "kept").code) == (2, 2)
    assert kept("store", "status").code == 0
    asked = run_on_terminal(["store", "drop"], environment, typed=b"another\n")
    assert f"Type the name of its schema ({team.schema})" in without_styles(asked).replace("\n", " ")
    assert kept("store", "status").code == 0
    dropped = kept("store", "drop", "--yes", team.schema, "--json")
    check("store drop", dropped.json)
    assert dropped.json["bytes"] > 0
    with team.server.connect() as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [team.schema]).fetchall() == []
    assert kept("store", "drop", "--yes", team.schema).code == 6
    assert (workspace / "memory" / "a.md").exists()


def test_a_role_that_may_only_read_never_gets_the_key_of_the_pages(kept, team, role):
    def may_read(table: str) -> bool:
        with team.database.unchecked() as connection:
            row = connection.execute("SELECT has_table_privilege(%s, %s, 'SELECT')", [role, table]).fetchone()
        return row[0]

    kept("store", "grant", role, "--read-only")
    assert (may_read("access_tokens"), may_read("web_keys")) == (True, False)
    with team.database.unchecked() as connection:  # as before the table was there
        connection.execute("DROP TABLE web_keys, used_links")
        connection.execute("UPDATE schema_versions SET version = 1 WHERE part = 'serving'")
    assert kept("store", "migrate").code == 0
    assert (may_read("used_links"), may_read("web_keys")) == (True, False)
    kept("store", "grant", role)
    assert may_read("web_keys")
