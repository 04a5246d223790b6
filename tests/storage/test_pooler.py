"""Two teams in one database behind PgBouncer, which gives each transaction any connection: nothing mixes."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator

import pytest

from kept import Memory
from kept.config import load_config
from kept.storage.open import open_database
from tests.support.postgres import PostgresServer, new_schema
from tests.support.program_setup import find_pgbouncer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pooler

TEAMS = ("red", "blue")
ROUNDS = 8
_SETTINGS = """
[databases]
postgres = host={server} dbname=postgres user=postgres
[pgbouncer]
unix_socket_dir = {folder}
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""


@pytest.fixture
def pooler(postgres: PostgresServer) -> Iterator[str]:
    """Address of a pooler with two connections for everybody."""
    program = find_pgbouncer()
    assert program, "there is no PgBouncer: run python -m tests.support.program_setup"
    folder = tempfile.mkdtemp(prefix="kept-pooler-", dir="/tmp")  # a socket's path is short
    with open(f"{folder}/settings", "w") as file:
        file.write(_SETTINGS.format(server=postgres.folder, folder=folder))
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    if user:
        shutil.chown(folder, user)
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen([program, f"{folder}/settings"], user=user, stdout=log, stderr=log)
    try:
        wait_until(lambda: os.path.exists(f"{folder}/.s.PGSQL.6432"), "the pooler listens")
        yield f"postgresql:///postgres?host={folder}&port=6432&user=postgres"
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def test_two_teams_behind_a_pooler_write_and_find_only_what_is_theirs(pooler, tmp_path):
    schemas = {team: new_schema() for team in TEAMS}
    failures = []

    def work(team: str, number: int) -> None:
        home, address = str(tmp_path / team), f"{pooler}&schema={schemas[team]}"
        config = load_config(home=home, workspace=f"{home}/workspace", database=address).config
        other = next(name for name in TEAMS if name != team)
        with Memory(config) as memory:
            for at in range(ROUNDS):
                memory.add(f"Member {number} of the {team} team wrote line {at}.", to=f"memory/{number}.md")
                text = str(memory.search(f"which line did member {number} write?"))
                if other in text or f"line {at}" not in memory.read(f"memory/{number}.md").text:
                    failures.append(text)

    for team in TEAMS:
        config = load_config(home=str(tmp_path / team), database=f"{pooler}&schema={schemas[team]}").config
        with Memory(config) as memory:
            memory.workspace.make()
    threads = [threading.Thread(target=work, args=(team, number)) for team in TEAMS for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_database.cache_clear()
    assert failures == []
    for team in TEAMS:
        config = load_config(home=str(tmp_path / team), database=f"{pooler}&schema={schemas[team]}").config
        with Memory(config) as memory:
            texts = [memory.read(f"memory/{number}.md").text for number in range(2)]
            assert [text.count(f"the {team} team wrote line") for text in texts] == [ROUNDS, ROUNDS]
    open_database.cache_clear()
