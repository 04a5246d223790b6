"""`kept gateway` as people run it: real processes, signals, the lock, and the examples of the documentation."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from kept import Memory
from kept.config import load_config
from kept.gateway.channels.gateway import with_session_age
from kept.server.live import find_watcher
from tests.support.chat_server import ModelServer, Says
from tests.support.commands import KEPT
from tests.support.gateway_processes import Process
from tests.support.repository import ROOT
from tests.support.telegram_server import TOKEN, BotApi
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

GUIDE = ROOT / "docs/tasks/gateway.md"


@pytest.fixture
def model():
    with ModelServer() as server:
        server.otherwise = Says("Staging is on port 5433.")
        yield server


@pytest.fixture
def started(tmp_path):
    """Starts gateways on a workspace, and ends those that are left."""
    (tmp_path / "workspace").mkdir(exist_ok=True)
    running: list[Process] = []

    def start(*settings: str, **env: str) -> Process:
        running.append(Process(tmp_path, "gateway.http.port=0", *settings, **env))
        return running[-1]

    yield start
    for process in running:
        if process.process.poll() is None:
            process.kill()


def kept_gateway(tmp_path: Path, model: ModelServer, *settings: str, **env: str) -> Process:
    (tmp_path / "workspace").mkdir(exist_ok=True)
    chosen = ["gateway.http.port=0", "model.provider=openai", "model.name=test", f"model.base_url={model.openai_url}"]
    options = [part for setting in (*chosen, *settings) for part in ("--set", setting)]
    return Process(tmp_path, command=(KEPT, *options, "gateway"), **env)


def test_the_real_command_answers_with_a_real_model_over_http_and_telegram(tmp_path, model):
    with BotApi() as api:
        gateway = kept_gateway(
            tmp_path,
            model,
            f"gateway.telegram.base_url={api.url}",
            "gateway.telegram.allow_users=7",
            "gateway.auto_responder.debounce_ms=0",
            TELEGRAM_BOT_TOKEN=TOKEN,
        )
        try:
            url = gateway.url()
            answer = httpx.post(f"{url}/v1/messages", json={"user": "ada", "text": "Which port?"}, timeout=60)
            assert answer.json()["reply"] == "Staging is on port 5433."
            api.write("Which port?", user=7)
            assert api.wait_for_sent(1, patience_s=60) == ["Staging is on port 5433."]
            assert gateway.stop() == 0
        finally:
            gateway.kill()
        output = "\n".join(gateway.lines)
        assert "Telegram: @kept_bot" in output
        assert TOKEN not in output
        assert gateway.lines[-1] == "Stopped."


def test_the_examples_of_the_guide_work_as_they_stand(tmp_path, model):
    gateway = kept_gateway(tmp_path, model)
    try:
        url = gateway.url()
        blocks = re.findall(r"^```sh\n(curl.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        commands = [command for block in blocks for command in re.split(r"\n(?=curl)", block.strip())]
        assert len(commands) == 4
        outputs = []
        for command in commands:
            script = command.replace("http://127.0.0.1:8737", url)
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
            outputs.append(done.stdout)
        posted, streamed, state, health = outputs
        shape = json.loads(re.search(r"```json\n(.*?)\n```", GUIDE.read_text(), re.DOTALL)[1])
        assert set(json.loads(posted)) == set(shape)
        assert json.loads(posted)["reply"] == "Staging is on port 5433."
        assert "event: delta" in streamed
        assert json.loads(state)["status"] == "answered"
        assert json.loads(health) == {"status": "ok"}
        assert gateway.stop() == 0
    finally:
        gateway.kill()


def test_while_it_runs_the_index_follows_the_notes(tmp_path, started):
    gateway = started("memory_search.sync.watch_debounce_ms=0")
    gateway.url()
    with Memory.open(tmp_path / "workspace", home=tmp_path / "home") as memory:
        wait_until(lambda: find_watcher(memory.config) == gateway.process.pid, "the gateway follows the notes")
        (tmp_path / "workspace/MEMORY.md").write_text("- Staging is on port 5433.\n")
        wait_until(lambda: memory.status().files == 1, "the note is indexed")
    assert gateway.stop() == 0


def test_status_says_what_is_still_to_be_answered(tmp_path, kept, started):
    def state():
        return kept("--home", tmp_path / "home", "status", "--json").json["inbox"]

    assert state() is None
    gateway = started("gateway.http.debounce_ms=600000")
    url = gateway.url()
    for number in range(2):
        httpx.post(f"{url}/v1/messages", json={"user": "a", "text": f"Hi {number}", "wait": False}, timeout=60)
    gateway.kill()
    assert state() == {"waiting": 2, "undelivered": 0, "unsure": 0, "damaged": 0}
    assert "2 messages without an answer" in kept("status").out
    again = started()
    again.url()
    assert again.stop() == 0
    assert state() == {"waiting": 0, "undelivered": 0, "unsure": 0, "damaged": 0}


def test_what_is_wrong_with_the_settings_is_one_line(tmp_path, kept):
    assert kept("gateway").code == 10
    with_model = ("--set", "model.provider=extractive")
    off = kept(*with_model, "--set", "gateway.auto_responder.enabled=false", "gateway")
    assert (off.code, off.err.count("\n")) == (2, 1)
    none = kept(*with_model, "--set", "gateway.http.enabled=false", "gateway")
    assert (none.code, none.err.count("\n")) == (2, 1)
    assert "No channel is configured." in none.err
    reachable = kept(*with_model, "--set", "gateway.http.host=0.0.0.0", "gateway")
    assert "No token lets anybody in at 0.0.0.0." in reachable.err
    nobody = kept(*with_model, "gateway", env={"TELEGRAM_BOT_TOKEN": TOKEN})
    assert "allow_users is empty" in nobody.err


def test_the_gateways_own_age_of_a_session_counts_where_it_is_set(tmp_path):
    assert with_session_age(loaded := load_config()) is loaded
    setting = "gateway.auto_responder.session_max_age_ms"
    reset = with_session_age(load_config(settings={setting: 90_000})).config.agent.session.reset
    assert (reset.mode, reset.idle_minutes) == ("idle", 2)
    assert with_session_age(load_config(settings={setting: 0})).config.agent.session.reset.mode == "none"
