"""A dump of a team's schema brings everything back: the index, the tokens and the inbox."""

from __future__ import annotations

import os
import subprocess
from urllib.parse import urlsplit

from tests.support.postgres_server import find_programs
from tests.support.serve_process import create_token
from tests.support.workspaces import write_note


def test_a_dump_that_is_loaded_into_another_database_is_searched_like_the_first(kept, team, workspace, home, tmp_path):
    write_note(workspace, "memory/a.md", "The heron stands still.\n")
    assert kept("index").code == 0
    create_token(home, "reader", "read")
    programs = find_programs(tmp_path)
    dump = subprocess.run(
        [programs / "pg_dump", f"--schema={team.schema}", team.server.url], check=True, capture_output=True
    ).stdout
    name = f"copy_{os.urandom(4).hex()}"
    url = urlsplit(team.server.url)._replace(path=f"/{name}").geturl()
    with team.server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            load = [programs / "psql", "-v", "ON_ERROR_STOP=1", "-q", url]
            loaded = subprocess.run(load, input=dump, capture_output=True)
            assert (loaded.returncode, loaded.stderr) == (0, b"")
            restored = {"KEPT_MEMORY_SEARCH__STORE__URL": url}
            assert kept("store", "status", env=restored).code == 0
            found = kept("search", "heron", "--json", env=restored).json
            assert [hit["path"] for hit in found["results"]] == ["memory/a.md"]
            assert [token["name"] for token in kept("token", "list", "--json", env=restored).json["tokens"]] == [
                "reader"
            ]
            assert kept("doctor", env=restored).code == kept("doctor").code
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
