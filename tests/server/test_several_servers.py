"""Several servers with one memory in PostgreSQL: they know the same, and another one goes on when one is killed."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import KEPT
from tests.support.serve_process import SETTINGS, ServeProcess
from tests.support.waiting import PATIENCE_S, wait_until

PAGE = Path(__file__).parents[2] / "docs/tasks/teams.md"


@pytest.fixture
def team(tmp_path: Path, database_address: str) -> Iterator[Callable[[str], ServeProcess]]:
    """Start servers with homes of their own, as on other machines, on one database."""
    servers = []

    def start(name: str) -> ServeProcess:
        (tmp_path / name).mkdir(exist_ok=True)
        command = (KEPT, "serve", "--port", "0", "--log-format", "json", *SETTINGS, "--database", database_address)
        servers.append(ServeProcess(tmp_path / name, command=command))
        return servers[-1]

    kept = (KEPT, "--home", str(tmp_path / "one/home"), "--workspace", str(tmp_path / "one/workspace"))
    subprocess.run([*kept, "--database", database_address, "init"], check=True, capture_output=True)
    yield start
    for server in servers:
        server.stop()


def run(database: str, tmp_path: Path, *arguments: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "operator"), "KEPT_DATABASE": database}
    return subprocess.run([KEPT, *arguments], env=env, check=True, capture_output=True, text=True).stdout.strip()


def say(server: ServeProcess, token: str, text: str, **fields: str):
    with server.client(token) as client:
        return client.post("/v1/messages", json={"user": "eve", "text": text, **fields})


def test_every_server_knows_what_another_was_told(team, tmp_path, database_address):
    token = run(database_address, tmp_path, "token", "create", "ada", "--scope", "admin")
    first, second = team("one"), team("two")
    first.call(token, "memory_write", text="Staging moved to port 5433.")
    assert "5433" in str(second.call(token, "memory_search", query="which port is staging on?"))
    replies = [
        say(server, token, "Which port is staging on?", id=f"m{at}") for at, server in enumerate((first, second))
    ]
    assert [answer.status_code for answer in replies] == [200, 200]
    assert all("5433" in answer.json()["reply"] for answer in replies)
    assert len({answer.json()["sessionId"] for answer in replies}) == 1
    with first.client(token) as client:
        assert client.get("/v1/messages/m1").json()["status"] == "answered"
    run(database_address, tmp_path, "token", "revoke", "ada")
    refused = [say(server, token, "Hello?") for server in (first, second)]
    assert [answer.status_code for answer in refused] == [401, 401]
    assert all("The token 'ada' was revoked on" in answer.text for answer in refused)


def test_what_is_forgotten_over_mcp_is_gone_from_the_inbox_too(team, tmp_path, database_address):
    token = run(database_address, tmp_path, "token", "create", "ada", "--scope", "admin")
    server = team("one")
    wait_until(lambda: say(server, token, "/status").status_code == 200, "the server answers")
    assert say(server, token, "The code of the vault is heliotrope.", id="secret").status_code == 200
    shown = server.call(token, "memory_forget", query="heliotrope")["content"][0]["text"]
    receipt = server.call(token, "memory_forget", query="heliotrope", confirm=shown.rpartition("confirm: ")[2])
    assert "Receipt" in (text := receipt["content"][0]["text"])
    assert "inbox" not in text
    with server.client(token) as client:
        assert "heliotrope" not in client.get("/v1/messages/secret").text


def test_another_server_answers_when_the_one_that_did_is_killed(team, tmp_path, database_address):
    token = run(database_address, tmp_path, "token", "create", "ada", "--scope", "admin")
    first = team("one")
    wait_until(lambda: say(first, token, "/status").status_code == 200, "the first server answers")
    second = team("two")
    say(first, token, "Remember the lighthouse.", id="before")
    first.kill()
    assert say(second, token, "Is anybody there?", id="lost").status_code in (200, 503)
    wait_until(lambda: say(second, token, "Is anybody there?", id="after").status_code == 200, "the second takes over")
    with second.client(token) as client:
        wait_until(lambda: client.get("/v1/messages/after").json().get("reply"), "the message is answered")
        assert client.get("/v1/messages/before").json()["status"] == "answered"
    assert "lighthouse" in str(second.call(token, "sessions_search", query="lighthouse"))


def test_the_commands_of_the_page_bring_what_a_writes_to_b(tmp_path, database_address):
    blocks = dict(re.findall(r"```bash (server|machine A|machine B)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    install, *commands = blocks["server"].splitlines()
    assert install.startswith("pip install")
    assert (len(commands), commands[-1]) == (4, "kept serve")
    setup = "\n".join(commands[:-1]).replace("postgresql://kept@db.internal/kept", database_address)
    folder = os.path.dirname(KEPT)

    def bash(machine: str, script: str, text: str = "") -> str:
        env = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path / machine)}
        Path(env["HOME"]).mkdir(exist_ok=True)
        command = ["bash", "-euc", script]
        done = subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    token = bash("server", setup).splitlines()[-1]
    script = f"export PATH={folder}:$PATH HOME={tmp_path}/server\n{setup.splitlines()[0]}\nexec {commands[-1]} --port 0"
    command = ("bash", "-c", f"{script} --log-format json --set model.provider=extractive")
    server = ServeProcess(tmp_path / "server", command=command)
    try:
        shown = {}
        for machine in ("A", "B"):
            login, *then = blocks[f"machine {machine}"].replace("https://memory.example.org", server.url).splitlines()
            bash(machine, login, f"{token}\n")
            shown[machine] = bash(machine, "\n".join(then))
        assert "port 5433" in shown["B"]
    finally:
        server.stop()
