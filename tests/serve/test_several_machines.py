"""`kept serve` on two machines over one database, behind a balancer that sends each request to another of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.balancer import Balancer
from tests.support.chat_server import Call, ModelServer, Says, Stalls
from tests.support.files import write_file
from tests.support.mcp_client import ACCEPT
from tests.support.serve_process import ServeProcess, bearer, create_token, read_result, revoke_token
from tests.support.team_gateways import count_wrong, wait_for_answers
from tests.support.toy_mcp import toy
from tests.support.waiting import PATIENCE_S, wait_until

SETTINGS = ("--set", "gateway.lease_seconds=1", "--set", "gateway.http.debounce_ms=5")
pytestmark = pytest.mark.slow


@dataclass
class Machines:
    first: ServeProcess
    second: ServeProcess
    balancer: Balancer
    environment: dict[str, str]

    @contextmanager
    def client(self, token: str | None = None) -> Iterator[httpx.Client]:
        """Yield a client of the balancer. It makes a connection for each request."""
        headers = {"Connection": "close", **(bearer(token) if token else {})}
        with httpx.Client(base_url=self.balancer.url, headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
            yield client


def start(folder: Path, environment: dict[str, str], *options: str) -> ServeProcess:
    write_file(folder / "workspace/MEMORY.md", "# Memory\n\n- Staging moved to port 5433.\n")
    return ServeProcess(folder, *SETTINGS, *options, **environment)


@contextmanager
def running(tmp_path: Path, team: Any, *options: str) -> Iterator[Machines]:
    environment = {**team.environment, "KEPT_MEMORY_SEARCH__STORE__WORKSPACE": "sales"}
    with ThreadPoolExecutor(2) as pool:
        started = list(pool.map(lambda name: start(tmp_path / name, environment, *options), ("one", "two")))
    balancer = Balancer(process.port for process in started)
    try:
        yield Machines(*started, balancer, environment)
        assert "postgresql://" not in "\n".join(line for process in started for line in process.lines)
    finally:
        balancer.close()
        for process in started:
            if process.process.poll() is None:
                assert process.stop() == 0


def set_options(settings: Mapping[str, Any]) -> list[str]:
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]


def model_options(model: ModelServer) -> list[str]:
    return set_options({"model.provider": "openai", "model.name": "test", "model.base_url": model.openai_url})


@contextmanager
def browser_at(machines: Machines, token: str) -> Iterator[httpx.Client]:
    """Yield a browser that has sent the token to one of the machines."""
    with machines.client() as browser:
        browser.headers["Origin"] = machines.balancer.url
        assert browser.post("/login", data={"token": token}).status_code == 303
        yield browser


def form_token(page: httpx.Response) -> str:
    assert page.status_code == 200, page.text[-500:]
    match = re.search(r'name="form_token" value="([^"]+)"', page.text)
    assert match
    return match[1]


def test_any_machine_answers_any_request_of_a_token(team, home, tmp_path):
    with running(tmp_path, team) as machines:
        token = create_token(home, "all", "admin")  # on neither of them
        with machines.client(token) as client:
            for number in range(6):
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
                params = {"name": "memory_search", "arguments": {"query": "staging port"}}
                answer = client.post("/mcp", json={**body, "params": params}, headers=ACCEPT)
                assert (answer.status_code, "5433" in str(read_result(answer))) == (200, True)
                sent = client.post("/v1/messages", json={"user": "ada", "text": "Staging?", "id": f"m{number}-ada"})
                assert (sent.status_code, sent.json()["status"]) == (200, "answered")
                assert client.get(f"/v1/messages/m{number}-ada").json()["reply"] == sent.json()["reply"]
            assert count_wrong(wait_for_answers(team.database), [])["twice"] == 0
            revoke_token(home, "all")
            wait_until(lambda: {client.get("/v1/models").status_code for _ in range(4)} == {401}, "both refuse it")
        assert all(count > 3 for count in machines.balancer.counts.values())


def test_a_stream_at_one_machine_ends_when_its_token_is_revoked_at_another(team, home, tmp_path):
    with running(tmp_path, team) as machines:
        token = create_token(tmp_path / "one/home", "brief", "read")
        with machines.second.sign_in(token) as browser, browser.stream("GET", "/events") as events:
            following = events.iter_raw()
            assert next(following)
            revoke_token(tmp_path / "one/home", "brief")
            for _ in following:
                pass  # it ends by itself


def test_a_browser_signs_in_at_one_machine_and_goes_on_at_any(team, home, tmp_path):
    token = create_token(home, "ada", "admin")
    with running(tmp_path, team) as machines, browser_at(machines, token) as browser:
        assert [browser.get("/notes").status_code for _ in range(4)] == [200] * 4
        for number in range(4):  # each form comes from the other machine
            fields = {"text": f"The otter number {number} swims.", "form_token": form_token(browser.get("/"))}
            assert browser.post("/add", data=fields).status_code == 303
        assert all(count > 3 for count in machines.balancer.counts.values())


def test_a_one_time_link_works_once_on_all_machines(team, tmp_path):
    with running(tmp_path, team, "--log-format", "text") as machines:
        link = re.search(r"/open\?key=[\w.-]+", machines.first.wait_for("/open?key="))
        assert link
        with machines.second.client() as browser, machines.first.client() as other:
            assert browser.get(link.group()).status_code == 200
            assert browser.get("/notes").status_code == 200
            assert other.get(link.group()).status_code == 401


def test_a_chat_begun_at_one_machine_is_read_and_stopped_at_another(team, home, tmp_path):
    token = create_token(home, "ada", "admin")
    with (
        ModelServer() as model,
        running(tmp_path, team, *model_options(model)) as machines,
        machines.first.sign_in(token) as one,
        machines.second.sign_in(token) as two,
    ):
        model.otherwise = Says("Staging is on port 5433.")
        ask(one, "Which port is staging on?")
        page = two.get("/chat").text
        assert "Which port is staging on?" in page
        assert "Staging is on port 5433." in page
        model.otherwise = Stalls("It is ")
        pending = follow_in_thread(one, "And now?")
        wait_until(lambda: "And now?" in two.get("/chat").text, "the other machine shows what is being answered")
        assert (
            two.post("/chat/send", data={"text": "Wait", "form_token": form_token(two.get("/chat"))}).status_code == 400
        )
        assert two.post("/chat/stop", data={"form_token": form_token(two.get("/chat"))}).status_code == 303
        events = pending.result(PATIENCE_S)
        assert {"type": "notice", "text": "Stopped."} in events
        model.otherwise = Says("Fine.")
        events = ask(two, "How are you?")  # the first machine answers, since the conversation is there
        assert "".join(event.get("text", "") for event in events) == "Fine."
        assert "Fine." in one.get("/chat").text


def ask(browser: httpx.Client, text: str) -> list[dict[str, Any]]:
    """Send a message as the script of the page does. Return the events of the answer."""
    fields = {"text": text, "form_token": form_token(browser.get("/chat"))}
    answer = browser.post("/chat/send", data=fields, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text[-500:]
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[-1] == {"type": "done"}
    return events


def follow_in_thread(browser: httpx.Client, text: str) -> Any:
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(ask, browser, text)
    finally:
        pool.shutdown(wait=False)


def test_a_call_that_one_machine_asks_about_is_allowed_at_another(team, home, tmp_path):
    token = create_token(home, "ada", "admin")
    tools = toy(permission="ask")
    asked = {name: value if isinstance(value, str) else ",".join(value) for name, value in tools.items()}
    with ModelServer() as model:
        options = [*model_options(model), *set_options(asked)]
        with running(tmp_path, team, *options) as machines:
            model.script(Says("", Call("toy__add", {"a": 2, "b": 3})), Says("It is five."))
            with machines.first.sign_in(token) as one, machines.second.sign_in(token) as two:
                pending = follow_in_thread(one, "Add them.")
                with machines.first.sign_in(token) as watching:
                    found = wait_until(
                        lambda: re.search(r'name="id" value="([^"]+)"', watching.get("/chat").text), "it asks"
                    )
                wrong = {"id": "another", "decision": "allow", "form_token": form_token(two.get("/chat"))}
                two.post("/chat/decide", data=wrong)
                fields = {"id": found[1], "decision": "allow", "form_token": form_token(two.get("/chat"))}
                assert two.post("/chat/decide", data=fields).status_code == 303
                assert "It is five." in "".join(event.get("text", "") for event in pending.result(PATIENCE_S))
            assert "5" in str(model.chats[-1].body["messages"][-1])


def test_a_machine_that_is_killed_in_the_middle_of_answers_is_followed_by_the_other(team, home, tmp_path):
    token = create_token(home, "all", "admin")
    with ModelServer() as model, running(tmp_path, team, *model_options(model)) as machines:
        model.otherwise = Stalls("It is ")
        accepted = []
        with machines.first.client(token) as one, machines.first.sign_in(token) as browser:
            for user in ("ada", "bob"):
                message = {"user": user, "text": f"Hello <<m-{user}>>", "id": f"m-{user}", "wait": False}
                assert one.post("/v1/messages", json=message).status_code == 202
                accepted.append(f"m-{user}")
            pending = follow_in_thread(browser, "Which port?")
            model.wait_for_chats(3)
            model.otherwise = lambda request: Says(f"Echo: {json.dumps(request.body['messages'][-1])}")
            machines.first.kill()
        with pytest.raises((httpx.TransportError, AssertionError, IndexError)):
            pending.result(PATIENCE_S)  # the connection broke off, or the answer did
        inbox = wait_for_answers(team.database)
        assert count_wrong(inbox, accepted) == {"lost": 0, "twice": 0, "out of order": 0}
        with machines.client(token) as client:
            for name in accepted:
                assert client.get(f"/v1/messages/{name}").json()["status"] == "answered"
        with machines.second.sign_in(token) as browser:
            page = browser.get("/chat").text
            assert page.count("Which port?") >= 2  # asked once, and quoted by the echo
            assert "Echo:" in page
