"""The running server: logs, figures, limits, revoked tokens, a second process, and its end."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kept.server import run_server as server_module
from kept.server.requests import Readiness
from tests.support.commands import kept_environment, run_kept
from tests.support.files import write_file
from tests.support.http_gateway import serving
from tests.support.serve_process import ServeProcess, bearer, create_token, revoke_token
from tests.support.waiting import wait_until
from tests.support.workspaces import write_note

PLANTED = "zanzibar7pelican"


@pytest.fixture
def home(tmp_path):
    write_file(tmp_path / "workspace/MEMORY.md", f"# Memory\n\n- The code word is {PLANTED}.\n")
    return tmp_path / "home"


def test_the_log_has_every_request_and_nothing_of_what_it_said(server, tokens, place):
    write_file(place / f"workspace/memory/{PLANTED}.md", f"# {PLANTED}\n\nNobody may log {PLANTED}.\n")
    before = len(server.requests())
    secret = tokens["writer"]
    with server.client(secret) as client:
        client.post("/v1/messages", json={"user": PLANTED, "text": PLANTED, "id": PLANTED})
        client.get(f"/v1/messages/{PLANTED}")
        client.get(f"/v1/{PLANTED}?q={PLANTED}", headers={"X-Request-Id": PLANTED, "User-Agent": PLANTED})
        client.request(PLANTED.upper(), "/v1/models")
        client.post("/mcp", content=f"{{{PLANTED}", headers={"Content-Type": "application/json"})
        client.get(f"/{PLANTED}", headers={"Authorization": f"Bearer {PLANTED}", "Host": PLANTED})
    server.call(secret, "memory_search", query=PLANTED)
    server.call(secret, "memory_write", text=f"{PLANTED} again.")
    server.call(secret, PLANTED, query=PLANTED)
    with server.sign_in(secret) as browser:
        assert PLANTED in browser.get(f"/?q={PLANTED}").text
        assert browser.get(f"/note/memory/{PLANTED}.md").status_code == 200
    with server.client(secret) as client:
        figures = client.get("/metrics").text
    wait_until(lambda: len(server.requests()) >= before + 13, "every request is logged")
    log = "\n".join(server.lines)
    for text in (log, figures):
        assert PLANTED not in text.lower()
        assert all(token not in text for token in tokens.values())
    fields = {"time", "level", "logger", "event", "requestId", "method", "route", "status", "durationMs", "token"}
    entries = server.requests()[before:]
    assert all({*entry} == fields for entry in entries)
    assert len({entry["requestId"] for entry in entries}) == len(entries)
    assert ("GET", "/note/{path:path}", 200, "writer") in {
        (entry["method"], entry["route"], entry["status"], entry["token"]) for entry in entries
    }


def test_figures_count_requests_searches_and_calls(server, tokens):
    server.call(tokens["reader"], "memory_search", query="staging port")
    with server.client(tokens["reader"]) as client:
        answer = client.get("/metrics")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["kept_requests_total", "/mcp", "200", "POST"] >= 1
    assert samples["kept_search_seconds_count",] >= 1
    assert samples["kept_tool_calls_total", "memory_search", "true"] >= 1
    assert samples["kept_queue_depth", "main"] == 0
    assert samples["kept_sync_lag_seconds", "main"] >= 0
    with server.client() as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz", headers={"Host": "10.0.0.7"}).json() == {"status": "ready", "reason": ""}
        assert client.post("/readyz").status_code == 405


def test_a_revoked_token_is_refused_with_the_next_request(server, place):
    token = create_token(place / "home", "brief", "read")
    with server.sign_in(token) as browser, server.client(token) as client:
        assert client.get("/v1/models").status_code == 200
        assert browser.get("/").status_code == 200
        revoke_token(place / "home", "brief")
        assert client.get("/v1/models").status_code == 401
        assert browser.get("/").status_code == 401
        assert server.ask(token, "tools/list").status_code == 401


def test_a_second_server_of_the_same_home_is_refused_in_one_line(server, place, kept):
    environment = {"KEPT_HOME": str(place / "home"), "KEPT_WORKSPACE": str(place / "workspace")}
    for command in (("serve", "--port", "0"), ("gateway",)):
        ended = kept("--set", "model.provider=extractive", *command, env=environment)
        assert (ended.code, ended.err.count("\n")) == (5, 1)
        assert "Another process answers the messages" in ended.err


def test_a_server_that_was_killed_leaves_its_messages_to_the_next(home, tmp_path):
    token = create_token(home, "all", "admin")
    first = ServeProcess(tmp_path)
    with killing(first), first.client(token) as client:
        sent = client.post("/v1/messages", json={"user": "ada", "text": "What is the code word?", "id": "m1"})
        assert (sent.status_code, sent.json()["status"]) == (200, "answered")
        first.kill()
    second = ServeProcess(tmp_path)
    with killing(second), second.client(token) as client:
        assert client.get("/v1/messages/m1").json() == sent.json()
        assert second.stop() == 0
    assert [path.name for path in home.iterdir() if path.name.startswith("gateway")] == []


@contextmanager
def killing(process: ServeProcess) -> Iterator[None]:
    """Leave no process behind if a test fails."""
    try:
        yield
    finally:
        if process.process.poll() is None:
            process.kill()


def test_a_server_finishes_what_it_has_begun_when_it_is_told_to_stop(home, tmp_path):
    token = create_token(home, "all", "admin")
    running = ServeProcess(tmp_path, "--set", "gateway.http.debounce_ms=1500")
    inbox = home / "agents/main/inbox.jsonl"
    with killing(running), ThreadPoolExecutor() as pool, running.client(token) as client:
        message = {"user": "ada", "text": "What is the code word?"}
        answer = pool.submit(client.post, "/v1/messages", json=message)
        wait_until(lambda: inbox.exists() and b"code word" in inbox.read_bytes(), "the message is accepted")
        assert running.stop() == 0
        assert answer.result().json()["status"] == "answered"
    with pytest.raises(httpx.TransportError), running.client() as client:
        client.get("/healthz")


async def test_too_many_requests_wait_by_token_and_by_address(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "TOKEN_BURST", 3)
    monkeypatch.setattr(server_module, "ADDRESS_BURST", 5)
    token, other, person = (create_token(tmp_path / "home", name, "read") for name in ("busy", "calm", "person"))
    slow = {"serve.token_rate_per_s": 0.01, "serve.address_rate_per_s": 0.01, "serve.trusted_proxies": "127.0.0.1"}

    async with serving(tmp_path, **slow, **{"web.enabled": True}) as at:

        async def get(address: str, secret: str = token) -> httpx.Response:
            headers = {"X-Forwarded-For": f"9.9.9.9, {address}", **bearer(secret)}
            return await at.client.get("/v1/models", headers=headers)

        assert [(await get("10.1.1.1")).status_code for _ in range(4)] == [200, 200, 200, 429]
        refused = await get("10.1.1.2")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        # neither its token nor its address was used much
        assert (await get("10.1.1.3", other)).status_code == 200
        assert (await get("10.1.1.1", other)).status_code == 200
        # The sixth from this address, whatever it says before it: others there do not keep a right token out.
        assert (await get("10.1.1.1", "wrong")).status_code == 429
        assert [(await get("10.1.1.1", other)).status_code for _ in range(2)] == [200, 429]
        form = {"Origin": at.url, "X-Forwarded-For": "10.1.1.7"}
        assert (await at.client.post("/login", data={"token": person}, headers=form)).status_code == 303
        assert (await at.client.get("/notes", headers={"X-Forwarded-For": "10.1.1.1"})).status_code == 200
        at.client.cookies.clear()
        assert (await at.client.get("/notes", headers={"X-Forwarded-For": "10.1.1.1"})).status_code == 429
        assert (await get("10.1.1.9", "wrong")).status_code == 401
        assert [(await at.client.get("/healthz")).status_code for _ in range(8)] == [200] * 8


def test_other_machines_are_not_served_without_a_token(home, tmp_path):
    def serve(*options: str):
        return run_kept("serve", "--port", "0", *options, env=kept_environment(tmp_path), cwd=tmp_path)

    assert (serve("--host", "a\x00b").code, serve("--host", "\u202eevil").code) == (2, 2)
    refused = serve("--host", "0.0.0.0")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "kept token create" in refused.err
    assert "TLS" in refused.err
    create_token(home, "gone", "read")
    revoke_token(home, "gone")
    assert serve().code == 2  # even this machine: whoever revokes the last token does not mean to let everybody in
    assert serve("--set", "gateway.serve.trusted_proxies=nowhere").code == 2


# readiness


def find_problem(memory, *, timeout_s=30.0, busy=False):
    readiness = Readiness(memory, timeout_s)

    async def look() -> str:
        if not busy:
            return await readiness.find_problem()
        with readiness._service.inspecting():  # as a sync that takes long does
            return await readiness.find_problem()

    try:
        return asyncio.run(look())
    finally:
        readiness.close()


def test_an_index_that_opens_is_ready_and_one_that_does_not_is_named(memory, workspace, tmp_path):
    write_note(workspace, "memory/a.md", "A note.")
    assert find_problem(memory()) == ""
    (tmp_path / "folder").mkdir()
    assert find_problem(memory(settings={"memory_search.store.path": str(tmp_path / "folder")})) == "index_unavailable"


def test_an_index_that_does_not_answer_in_time_is_not_ready(memory):
    assert find_problem(memory(), timeout_s=0.1, busy=True) == "timeout"
