"""kept store, and what programs without a team's database import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.json_schema import check
from tests.support.teams import Team

PASSWORD = "hunter2-correct-horse"


@pytest.fixture
def fresh(postgres_server, environment):
    team = Team(postgres_server, create=False)
    environment.update(team.environment)
    yield team
    team.close()


def test_a_team_is_set_up_and_its_state_shown(kept, fresh):
    before = kept("store", "status", "--json")
    assert (before.code, before.json["state"]) == (6, "missing")
    assert kept("store", "migrate").code == 6
    made = kept("store", "init", "--json")
    check("store init", made.json)
    assert made.json["changed"]
    assert kept("store", "init").out.startswith("Nothing to do")
    check("store migrate", kept("store", "migrate", "--json").json)
    shown = kept("store", "status", "--json")
    check("store status", shown.json)
    assert (shown.code, shown.json["state"], shown.json["schema"]) == (0, "ready", fresh.schema)
    assert ": ready" in kept("store", "status").out


def test_the_address_is_never_shown(kept, fresh, environment):
    url = fresh.server.url.replace("postgres@", f"postgres:{PASSWORD}@")
    environment["KEPT_MEMORY_SEARCH__STORE__URL"] = url
    runs = [
        kept("store", "init"),
        kept("store", "status"),
        kept("store", "status", "--json"),
        kept("config", "show"),
        kept("config", "explain", "store"),
        kept("config", "get", "memory_search.store", "--json"),
        kept("--debug", "store", "status", env={"KEPT_MEMORY_SEARCH__STORE__URL": url.replace("host=", "host=/no")}),
    ]
    assert all(PASSWORD not in run.out + run.err for run in runs)
    assert runs[-1].code == 6
    assert "cannot be reached" in runs[-1].err


def test_without_a_database_there_is_nothing_to_set_up(kept):
    shown = kept("store", "status", "--json")
    check("store status", shown.json)
    assert shown.json["driver"] == "sqlite"
    assert "(not made yet; 'kept index' makes it)" in kept("store", "status").out
    refused = kept("store", "init")
    assert (refused.code, refused.out) == (2, "")
    assert "memory_search.store.driver" in refused.err


def test_programs_without_a_database_import_nothing_of_it(workspace, environment):
    code = (
        "import sys\n"
        "import kept.channels.gateway, kept.cli.search, kept.cli.status, kept.live, kept.responder.scheduler\n"
        "from kept import Memory\n"
        "with Memory.open(workspace=sys.argv[1]) as memory:\n"
        "    memory.add('Bees fly.')\n"
        "    assert memory.search('bees').hits\n"
        "    memory.status()\n"
        "loaded = [name for name in sys.modules if name.startswith(('psycopg', 'kept.postgres'))]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code, str(workspace)], env=environment, check=True, timeout=60)
