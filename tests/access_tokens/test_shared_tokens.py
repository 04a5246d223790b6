"""Tokens in the database of a team: what one machine creates or revokes holds on all, and an outage lets nobody in."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from urllib.parse import quote

import pytest

from kept.access_tokens import shared_tokens
from kept.access_tokens.shared_tokens import SharedTokenBook, SharedTokenWatch
from kept.access_tokens.token_book import TokenBook, make_token
from kept.access_tokens.token_file import TokenBookFile
from kept.errors import StoreUnreachable
from kept.postgres.open_database import close_databases, open_database
from tests.support.commands import KEPT
from tests.support.json_schema import check
from tests.support.own_server import OwnServer
from tests.support.waiting import wait_until

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def add(book, name="ci", *scopes, **options):
    token, secret = make_token(name, scopes or ("read",), NOW, **options)
    book.change(lambda known: known.with_token(token, NOW))
    return secret.encode()


@pytest.fixture
def watch(team):
    running = SharedTokenWatch(team.database, grace_s=600)
    running.refresh()
    yield running
    running.close()


def test_a_token_of_a_team_is_a_hash_in_its_table_and_no_file(kept, team, home):
    created = kept("token", "create", "ci", "--scope", "read", "--scope", "review", "--expires", "90d")
    secret = created.out.strip()
    assert (created.code, secret.startswith("kept_")) == (0, True)
    assert not (home / "tokens.json").exists()
    with team.database.reading() as connection:
        assert secret not in str(connection.execute("SELECT * FROM access_tokens").fetchall())
    (listed,) = kept("token", "list", "--json").json["tokens"]
    assert (listed["name"], listed["scopes"], listed["state"]) == ("ci", ["read", "review"], "active")
    assert kept("token", "create", "ci", "--scope", "read").code == 2
    revoked = kept("token", "revoke", "ci", "--json").json
    check("token revoke", revoked)
    assert (revoked["revoked"]["state"], kept("token", "revoke", "nobody").code) == ("revoked", 3)


def test_every_host_sees_what_one_has_created_and_revoked(team, watch):
    book = SharedTokenBook(team.database)
    assert not watch.is_in_use
    secret = add(book, "ada", "write", person="http:ada", agent="main", workspace="sales")
    wait_until(lambda: watch.find(secret, NOW), "the other machine hears of it")
    grant = watch.find(secret, NOW)
    assert (grant.agent, grant.person, grant.workspace, grant.scopes) == ("main", "http:ada", "sales", {"write"})
    assert watch.find_by_id(grant.token_id, NOW) == grant
    book.change(lambda known: known.revoke("ada", NOW))
    wait_until(lambda: watch.find(secret, NOW) is None, "the other machine hears of it")
    assert watch.is_in_use  # whoever revokes the last token does not mean to let everybody in


def test_a_change_that_nobody_was_told_of_is_seen_all_the_same(team, watch, monkeypatch):
    monkeypatch.setattr(shared_tokens, "notify", lambda *args, **options: None)
    secret = add(SharedTokenBook(team.database))
    wait_until(lambda: watch.find(secret, NOW), "the other machine looks every second")


def test_lost_connections_are_made_again(team, watch):
    assert team.end_connections() > 0
    secret = add(SharedTokenBook(team.database))
    wait_until(lambda: watch.find(secret, NOW), "the other machine connects again")


def test_tokens_created_on_several_hosts_at_once_are_all_kept(team, environment):
    running = [
        subprocess.Popen([KEPT, "token", "create", name, "--scope", "read"], env=environment, stdout=-1, stderr=-1)
        for name in ("t0", "t1", "t2", "t2")
    ]
    codes = [(process.communicate(timeout=60), process.returncode)[1] for process in running]
    assert sorted(codes) == [0, 0, 0, 2]
    assert sorted(token.name for token in SharedTokenBook(team.database).read().tokens) == ["t0", "t1", "t2"]


def test_a_role_that_may_only_read_makes_no_tokens(kept, team):
    role = f"reader_{os.urandom(4).hex()}"
    env = {"KEPT_MEMORY_SEARCH__STORE__URL": team.server.url.replace("postgres@", f"{quote(role)}@")}
    secret = add(SharedTokenBook(team.database))
    with team.server.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        try:
            kept("store", "grant", role, "--read-only")
            for command in (["create", "me", "--scope", "admin"], ["revoke", "ci"]):
                refused = kept("token", *command, env=env)
                assert (refused.code, refused.out) == (6, "")
                assert "may only read" in refused.err
            assert [token["name"] for token in kept("token", "list", "--json", env=env).json["tokens"]] == ["ci"]
            database = open_database(
                team.settings.__class__(
                    driver="postgres", url=env["KEPT_MEMORY_SEARCH__STORE__URL"], schema=team.schema
                )
            )
            watch = SharedTokenWatch(database, grace_s=600)
            watch.refresh()
            assert watch.find(secret, NOW)  # its servers check tokens like the others
            watch.close()
        finally:
            close_databases()
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("damage", ["scopes = '{root}'", "scopes = '{}'", "digest = 'x'", "name = ''", "person = ''"])
def test_a_row_that_is_no_token_lets_nobody_in(team, watch, kept, damage):
    secret = add(SharedTokenBook(team.database))
    with team.database.writing() as connection:
        connection.execute(f"UPDATE access_tokens SET {damage}")
        connection.execute("UPDATE token_version SET number = number + 1")
    watch.refresh()
    assert watch.find(secret, NOW) is None
    assert "lets nobody in" in kept("token", "list").err


def test_an_outage_lets_known_tokens_in_for_a_time_and_nobody_else():
    server = OwnServer()
    try:
        secret = add(SharedTokenBook(open_database(server.settings)))
        patient = SharedTokenWatch(open_database(server.settings), grace_s=600)
        strict = SharedTokenWatch(open_database(server.settings), grace_s=0)
        patient.refresh()
        strict.refresh()
        server.stop()
        late = SharedTokenWatch(open_database(server.settings), grace_s=600)
        assert patient.find(secret, NOW)
        assert patient.find(b"kept_unknown", NOW) is None
        with pytest.raises(StoreUnreachable):
            patient.refresh()  # so a server cannot say that there is no such token
        for watch in (strict, late):
            for ask in (lambda w=watch: w.find(secret, NOW), lambda w=watch: w.is_in_use):
                with pytest.raises(StoreUnreachable):
                    ask()
        server.start()
        wait_until(lambda: _finds(late, secret), "it connects by itself")
        for watch in (patient, strict, late):
            watch.close()
    finally:
        close_databases()
        server.close()


def _finds(watch: SharedTokenWatch, secret: bytes) -> bool:
    try:
        return watch.find(secret, NOW) is not None
    except StoreUnreachable:
        return False


def test_the_tokens_of_a_home_are_imported_once_and_a_revocation_wins(kept, team, home):
    book, file = SharedTokenBook(team.database), TokenBookFile(str(home))
    assert kept("token", "import").code == 2  # there is no file
    secrets = [add(file, name) for name in ("ci", "ada", "gone")]
    add(book, "ada", "admin")  # another token of that name
    add(book, "gone")
    book.change(lambda known: known.merge([file.read().get("gone")], NOW))
    file.change(lambda known: known.revoke("gone", NOW))
    imported = kept("token", "import", "--json").json
    check("token import", imported)
    assert (home / "tokens.json.imported").exists()
    assert not (home / "tokens.json").exists()
    found = [book.read().find_grant(secret, NOW) for secret in secrets]
    assert [grant.name[:4] if grant else None for grant in found] == ["ci", "ada-", None]
    assert book.read().get("ada").scopes == ("admin",)
    os.replace(home / "tokens.json.imported", home / "tokens.json")
    assert kept("token", "import", "--json").json["imported"] == []


def test_a_damaged_file_is_not_imported(kept, team, home):
    add(TokenBookFile(str(home)))
    file = home / "tokens.json"
    tree = json.loads(file.read_text())
    file.write_text(json.dumps({**tree, "tokens": [*tree["tokens"], {"id": 5}]}))
    refused = kept("token", "import")
    assert (refused.code, "Nothing was imported" in refused.err, file.exists()) == (2, True, True)
    assert SharedTokenBook(team.database).read() == TokenBook()


def test_without_a_team_there_is_nothing_to_import(kept, home):
    add(TokenBookFile(str(home)))
    assert kept("token", "import").code == 2
    assert (home / "tokens.json").exists()
