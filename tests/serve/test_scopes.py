"""Who may do what with a token, on every route, page and tool."""

from __future__ import annotations

import json
import socket

import pytest

from kept.channels.http import make_endpoints
from kept.channels.switchboard import Switchboard
from kept.clock import SystemClock
from kept.config import load_config
from kept.errors import ScopeMissing
from kept.grants import SCOPES, Grant
from kept.mcp.server import require_tool, scope_of
from kept.sessions.people import People
from kept.tools.forget_tool import FORGET_TOOL
from kept.tools.tool_definitions import TOOLS
from kept.web.screens import SCREENS
from tests.support.serve_process import read_result
from tests.support.waiting import PATIENCE_S

PAGES = {
    "read": {
        "GET /", "GET /timeline", "GET /notes", "GET /note/{path:path}",
        "GET /file/{path:path}", "GET /conversations", "GET /conversations/{id}", "GET /chat", "GET /chat/answer",
        "GET /context", "GET /changes", "GET /changes/{path:path}", "GET /graph/{path:path}", "GET /health",
        "GET /health/checks", "GET /health/providers", "GET /events", "GET /recall",
        "POST /theme",
    },
    "write": {
        "POST /add", "GET /edit/{path:path}", "POST /edit/{path:path}", "POST /undo", "POST /chat/send",
        "POST /chat/stop",
    },
    "review": {
        "GET /review", "GET /review/{item}", "POST /review/decide", "POST /review/decide-all", "POST /chat/decide",
    },
    "admin": {
        "GET /forget", "POST /forget/now", "GET /forget/receipts/{receipt}", "GET /settings", "GET /settings/{name}",
        "POST /settings/{name}/preview", "POST /settings/{name}/change", "POST /recall/run",
    },
}  # fmt: skip
ROUTES = {
    "POST /v1/messages": "write",
    "GET /v1/messages/{id}": "read",
    "DELETE /v1/messages/{id}": "write",
    "POST /v1/chat/completions": "write",
    "GET /v1/models": "read",
    "GET /v1/models/{name:path}": "read",
    "POST /v1/approvals/{id}": "write",
}


# the tables are total


def test_every_page_has_the_scope_that_it_should():
    declared: dict[str, set[str]] = {scope: set() for scope in SCOPES}
    for page in (page for screen in SCREENS for page in screen.pages):
        declared[page.scope] |= {f"{method} {page.path}" for method in page.methods}
    assert declared == PAGES


def test_every_route_of_the_http_channel_has_the_scope_that_it_should(tmp_path):
    config = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path)).config
    front = Switchboard({}, (), default="main")
    app = make_endpoints(front, {}, clock=SystemClock(), people=People(config))
    declared = {f"{method} {route.path}": route.name for route in app.routes for method in route.methods - {"HEAD"}}
    assert declared == ROUTES


def test_every_tool_has_the_scope_that_it_should_and_an_unknown_one_is_refused():
    assert {tool.name: scope_of(tool) for tool in (*TOOLS, FORGET_TOOL)} == {
        "memory_search": "read",
        "memory_get": "read",
        "memory_list": "read",
        "memory_status": "read",
        "sessions_search": "read",
        "memory_write": "write",
        "memory_forget": "admin",
    }
    with pytest.raises(Exception, match="no tool"):
        require_tool(Grant("1", "x", frozenset({"admin"})), "memory_shell")


def test_scopes_include_what_cannot_be_had_without():
    allowed = {
        scope: {other for other in SCOPES if Grant("1", "x", frozenset({scope})).allows(other)} for scope in SCOPES
    }
    assert allowed == {
        "read": {"read"},
        "write": {"read", "write"},
        "review": {"read", "review"},
        "admin": {*SCOPES},
    }
    with pytest.raises(ScopeMissing):
        Grant("1", "x", frozenset()).require("read")


# enforced on the running server


@pytest.mark.parametrize(
    ("name", "tools"),
    [("reader", 5), ("writer", 6), ("reviewer", 5), ("admin", 7)],
)
def test_a_client_of_mcp_sees_and_uses_only_what_its_token_allows(server, tokens, name, tools):
    token = tokens[name]
    listed = {tool["name"] for tool in read_result(server.ask(token, "tools/list"))["tools"]}
    assert len(listed) == tools
    assert "5433" in str(server.call(token, "memory_search", query="staging port"))
    scopes = {"memory_write": "write", "memory_forget": "admin"}
    arguments = {"memory_write": {"text": f"Written by {name}."}, "memory_forget": {"query": "no such words"}}
    for tool, given in arguments.items():
        result = server.call(token, tool, **given)
        is_refused = result["isError"] and f"lacks the scope '{scopes[tool]}'" in result["content"][0]["text"]
        assert is_refused == (tool not in listed), (tool, result)


def test_a_token_writes_its_name_into_the_history(server, tokens, place, kept):
    server.call(tokens["writer"], "memory_write", text="The token is recorded.")
    shown = kept(
        "history", "--json", env={"KEPT_HOME": str(place / "home"), "KEPT_WORKSPACE": str(place / "workspace")}
    )
    assert '"client": "writer"' in shown.out


@pytest.mark.parametrize(
    ("method", "path", "body", "scope"),
    [
        ("POST", "/v1/messages", {"user": "eve", "text": "hello"}, "write"),
        ("DELETE", "/v1/messages/none", None, "write"),
        ("POST", "/v1/chat/completions", {"model": "kept", "messages": []}, "write"),
        ("GET", "/v1/messages/none", None, "read"),
        ("GET", "/v1/models", None, "read"),
        ("POST", "/v1/approvals/none", {"allow": True}, "review"),
    ],
)
def test_a_route_without_its_scope_is_one_line_with_403(server, tokens, method, path, body, scope):
    for name in ("reader", "writer", "reviewer", "admin"):
        with server.client(tokens[name]) as client:
            answer = client.request(method, path, json=body)
        allowed = {"reader": "read", "writer": "read write", "reviewer": "read review", "admin": "read write review"}
        # An approval needs `write` for the route and `review` for calls of others.
        needed = {"write", "review"} if path.startswith("/v1/approvals") else {scope}
        assert (answer.status_code == 403) == (not needed <= {*allowed[name].split()}), (name, answer.text)
        if answer.status_code == 403:
            assert "lacks the scope" in answer.json()["error"]["message"]
    with server.client() as client:
        assert client.request(method, path, json=body).status_code == 401


def test_pages_open_with_a_token_and_refuse_what_it_does_not_allow(server, tokens):
    visits = {
        "reader": {"/"},
        "writer": {"/"},
        "reviewer": {"/", "/review"},
        "admin": {"/", "/review", "/forget", "/settings"},
    }
    for name, opened in visits.items():
        with server.sign_in(tokens[name]) as browser:
            for path in ("/", "/review", "/forget", "/settings"):
                answer = browser.get(path)
                assert answer.status_code == (200 if path in opened else 403), (name, path)
            change = browser.post("/add", data={"text": "x", "form_token": "guessed"})
        # The scope is checked before the token of the form, which a page without the scope could not have got.
        assert change.status_code == (403 if name in ("reader", "reviewer") else 400), (name, change.text[-400:])


def test_a_bearer_token_does_not_open_pages_and_a_cookie_opens_nothing_else(server, tokens):
    with server.client(tokens["admin"]) as client:
        assert client.get("/settings").status_code == 401
        forged = client.post("/settings/x/change", data={"value": "1"}, headers={"Origin": server.url})
        assert forged.status_code == 401
    with server.sign_in(tokens["admin"]) as browser:
        assert browser.get("/v1/models").status_code == 401
        assert browser.get("/metrics").status_code == 401
        assert browser.post("/mcp", json={}).status_code == 401


# for one person, for one agent


def test_the_token_of_a_person_sees_what_the_person_sees(server, tokens):
    ada, admin = tokens["ada"], tokens["admin"]
    assert "marimbas" in str(server.call(ada, "memory_search", query="What does Ada collect?"))
    assert "zeppelins" not in str(server.call(ada, "memory_search", query="Bob fears zeppelins"))
    assert "zeppelins" in str(server.call(admin, "memory_search", query="Bob fears zeppelins"))
    path = "memory/private/bob@http/2026-03-01.md"
    assert server.call(ada, "memory_get", path=path)["isError"]
    uri = next(
        item["uri"]
        for item in read_result(server.ask(admin, "resources/list"))["resources"]
        if "bob%40http" in item["uri"] or "bob@http" in item["uri"]
    )
    assert "error" in server.ask(ada, "resources/read", {"uri": uri}).text
    assert "zeppelins" not in server.ask(ada, "resources/read", {"uri": uri}).text
    assert "bob" not in server.ask(ada, "resources/list").text


def test_the_token_of_a_person_speaks_for_that_person_only(server, tokens):
    with server.client(tokens["ada"]) as client:
        assert client.post("/v1/messages", json={"user": "bob", "text": "hi"}).status_code == 400
        sent = client.post("/v1/messages", json={"text": "Hello, it is me.", "id": "ada-1"})
        assert (sent.status_code, sent.json()["conversation"]) == (200, "agent:main:http:default:direct:ada")
        assert client.get("/metrics").status_code == 403
    with server.client(tokens["admin"]) as client:
        assert client.post("/v1/messages", json={"user": "bob", "text": "hi", "id": "bob-1"}).status_code == 200
        assert client.get("/v1/messages/ada-1").status_code == 200
    with server.client(tokens["ada"]) as client:
        assert client.get("/v1/messages/ada-1").status_code == 200
        assert client.get("/v1/messages/bob-1").status_code == 404
        assert client.delete("/v1/messages/bob-1").status_code == 404
    with server.client() as browser:
        refused = browser.post("/login", data={"token": tokens["ada"]}, headers={"Origin": server.url})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)


def test_the_token_of_an_agent_reaches_no_other(server, tokens):
    second = tokens["second"]
    assert "5433" not in str(server.call(second, "memory_search", query="staging port"))
    server.call(second, "memory_write", text="The second agent likes teal.")
    assert "teal" in str(server.call(second, "memory_search", query="which colour is liked?"))
    assert "teal" not in str(server.call(tokens["admin"], "memory_search", query="teal"))
    with server.client(second) as client:
        for body in ({"user": "x", "text": "hi", "agent": "main"}, {"user": "x", "text": "hi"}):
            assert client.post("/v1/messages", json=body).status_code in (403, 500)  # it is not routed here
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["kept"]
        assert client.get("/v1/models/kept/main").status_code == 404
        assert client.get("/v1/messages/ada-1").status_code == 404
    with server.client() as browser:
        assert browser.post("/login", data={"token": second}, headers={"Origin": server.url}).status_code == 403


def test_headers_that_came_twice_and_tokens_in_the_address_are_refused(server, tokens):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
    good, bad = f"Bearer {tokens['reader']}", "Bearer wrong"
    for pair in ((good, bad), (bad, good), (good, good)):
        headers = [("Authorization", value) for value in pair]
        with server.client() as client:
            answer = client.post("/mcp", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "header_repeated")
    for name in ("token", "access_token", "key"):
        with server.client() as client:
            assert client.get(f"/v1/models?{name}={tokens['admin']}").status_code == 401
            assert client.get(f"/?{name}={tokens['admin']}").status_code == 401
    chunked = f"Authorization: {good}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    assert send_raw(server, f"POST /v1/messages HTTP/1.1\r\n{chunked}", "0\r\n\r\n").startswith(b"HTTP/1.1 400")
    for path in ("/v1/../metrics", "/v1/%2e%2e/metrics", "/chat/./x"):
        assert send_raw(server, f"GET {path} HTTP/1.1\r\nAuthorization: {good}\r\n").startswith(b"HTTP/1.1 400")
    with server.client(tokens["admin"]) as client:
        assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 421
        assert client.get("/v1/models", headers={"Origin": "https://evil.example"}).status_code == 403
    with server.client() as client:
        for token in (tokens["admin"] + " x", tokens["admin"][:-1], "x" * 20_000, "\xfc"):
            assert (
                client.get("/v1/models", headers={b"Authorization": f"Bearer {token}".encode("latin-1")}).status_code
                == 401
            )


def send_raw(server, head: str, body: str = "") -> bytes:
    """Send what no library would, and return the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as line:
        line.sendall(f"{head}Host: 127.0.0.1\r\nConnection: close\r\n\r\n{body}".encode())
        return line.recv(1_000)
