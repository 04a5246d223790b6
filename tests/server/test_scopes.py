"""Who may do what with a token, on every route, page and tool."""

import json
import re
import socket
from collections.abc import Iterable, Iterator

import httpx
import pytest
from bs4 import BeautifulSoup

from kept.agent.events import Inbound
from kept.agent.tools.tool_definitions import TOOLS
from kept.agent.tools.toolbox import FORGET_TOOL
from kept.base.clock import SystemClock
from kept.base.grants import NEEDED, SCOPES, Act, Grant
from kept.client.server_connection import API
from kept.config import load_config
from kept.errors import ScopeMissing
from kept.gateway import dispatcher
from kept.gateway.channel import Switchboard
from kept.gateway.channels.http import make_endpoints
from kept.server.api import OPERATIONS
from kept.server.mcp.server import act_of, require_tool
from kept.server.web.web_app import SCREENS
from kept.sessions.people import People
from tests.support.serve_process import TOKENS, ServeProcess, read_result
from tests.support.waiting import PATIENCE_S

PAGES: dict[Act, set[str]] = {
    "read": {
        "GET /", "GET /timeline", "GET /notes", "GET /note/{path:path}",
        "GET /file/{path:path}", "GET /conversations", "GET /conversations/{id}", "GET /chat", "GET /chat/answer",
        "GET /changes", "GET /changes/{path:path}", "GET /health",
        "GET /health/checks",
    },
    "write notes": {"POST /add", "GET /edit/{path:path}", "POST /edit/{path:path}", "POST /undo"},
    "talk to the agent": {"POST /chat/send", "POST /chat/stop"},
    "review changes": {"GET /review", "POST /review/decide", "POST /review/decide-all"},
    "decide about calls of tools": {"POST /chat/decide"},
    "forget": {"GET /forget", "POST /forget/now", "GET /forget/receipts/{receipt}"},
    "change settings": {"GET /settings", "GET /settings/{name}", "POST /settings/{name}/change"},
}  # fmt: skip
ROUTES: dict[Act, set[str]] = {
    "read": {"GET /v1/messages/{id}", "GET /v1/models"},
    "talk to the agent": {"POST /v1/messages", "POST /v1/chat/completions"},
    "decide about calls of tools": {"POST /v1/approvals/{id}"},
}
TOOL_CALLS: dict[Act, set[str]] = {
    "read": {"memory_search", "memory_get", "memory_list", "memory_status", "sessions_search"},
    "write notes": {"memory_write"},
    "forget": {"memory_forget"},
}
COMMANDS: dict[Act, set[str]] = {
    "talk to the agent": {"new", "reset", "compact", "status", "model", "memory", "stop", "help"},
    "write notes": {"remember", "share"},
    "forget": {"forget"},
    "decide about calls of tools": {"approve", "deny"},
}
INSTRUCTIONS = ("SOUL.md", "memory/claude.md", "memory/projects/otter/PROJECT.md")


def test_every_page_does_what_the_table_says():
    pages = [page for screen in SCREENS for page in screen.pages]
    assert by_act((page.act, f"{method} {page.path}") for page in pages for method in page.methods) == PAGES


def test_every_route_of_the_http_channel_does_what_the_table_says(tmp_path):
    config = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path)).config
    front = Switchboard({}, (), default="main")
    routes = make_endpoints(front, clock=SystemClock(), people=People(config)).routes
    methods = ((route, method) for route in routes for method in route.methods - {"HEAD"})
    assert by_act((route.name, f"{method} {route.path}") for route, method in methods) == ROUTES


def test_every_tool_does_what_the_table_says_and_an_unknown_one_is_refused():
    assert by_act((act_of(tool), tool.name) for tool in (*TOOLS, FORGET_TOOL)) == TOOL_CALLS
    with pytest.raises(Exception, match="no tool"):
        require_tool(Grant("1", "x", frozenset({"admin"})), "memory_shell")


def test_every_command_does_what_the_table_says():
    names = re.findall(r"^/([a-z]+)", dispatcher.HELP, re.MULTILINE)
    assert by_act((dispatcher.act_of(Inbound("m", f"/{name} x")), name) for name in names) == COMMANDS


def by_act(ways: Iterable[tuple[Act, str]]) -> dict[Act, set[str]]:
    grouped: dict[Act, set[str]] = {}
    for act, way in ways:
        grouped.setdefault(act, set()).add(way)
    return grouped


class Walk:
    """Tries every way in with one token. `refused` has those that lack a scope, `tried` all, both by act."""

    def __init__(self, server: ServeProcess, token: str) -> None:
        self.server = server
        self.token = token
        self.tried: dict[Act, list[str]] = {}
        self.refused: list[tuple[Act, str]] = []

    def note(self, act: Act, way: str, answer: str) -> None:
        self.tried.setdefault(act, []).append(way)
        if "lacks the scope" in answer:
            assert f"lacks the scope '{NEEDED[act]}'" in answer.replace("&#39;", "'"), (act, way)
            self.refused.append((act, way))

    def call_tools(self) -> None:
        listed = {tool["name"] for tool in read_result(self.server.ask(self.token, "tools/list"))["tools"]}
        arguments = {"memory_write": {"text": "Walked by."}, "memory_forget": {"query": "no such words"}}
        for act, tools in TOOL_CALLS.items():
            for tool in tools:
                self.note(act, tool, str(self.server.call(self.token, tool, **arguments.get(tool, {}))))
                assert ((act, tool) in self.refused) == (tool not in listed), tool

    def ask_routes(self) -> None:
        bodies = {"/v1/messages": {"user": "eve", "text": "hello"}, "/v1/approvals/none": {"allow": True}}
        with self.server.client(self.token) as client:
            for act, method, path in ways_of(ROUTES):
                answer = client.request(method, path, json=bodies.get(path) if method == "POST" else None)
                assert (answer.status_code == 403) == ("lacks the scope" in answer.text), (path, answer.text)
                self.note(act, f"{method} {path}", answer.text)

    def ask_api(self) -> None:
        arguments = {"add": {"text": "Walked."}, "history/undo": {"dry_run": True}, "forgetting/plan": {"query": "no"}}
        with self.server.client(self.token) as client:
            for path, operation in OPERATIONS.items():
                body = arguments.get(path) or dict.fromkeys(operation.required, "none")
                answer = client.post(f"{API}{path}", json=body)
                assert (answer.status_code == 403) == ("lacks the scope" in answer.text), (path, answer.text)
                self.note(operation.act, path, answer.text)

    def open_pages(self) -> None:
        with self.server.sign_in(self.token) as browser:
            for act, method, path in ways_of(PAGES):
                # No form has its token: the scope is checked before.
                answer = browser.request(method, path, data={"text": "x"} if method == "POST" else None)
                assert (answer.status_code == 403) == ("lacks the scope" in answer.text), (path, answer.text)
                self.note(act, f"{method} {path}", answer.text)

    def give_commands(self) -> None:
        messages = [(act, f"/{name} no such words") for act, names in COMMANDS.items() for name in sorted(names)]
        with self.server.client(self.token) as client, self.server.sign_in(self.token) as browser:
            form_token = read_form(browser, "/chat")["form_token"]
            for act, text in messages:
                answer = client.post("/v1/messages", json={"user": "eve", "text": text})
                self.note(act, f"message {text}", answer.text)
                body = {"model": "kept", "user": "eve", "messages": [{"role": "user", "content": text}]}
                self.note(act, f"completion {text}", client.post("/v1/chat/completions", json=body).text)
                form = {"text": text, "form_token": form_token}
                answer = browser.post("/chat/send", data=form, headers={"Accept": "application/x-ndjson"})
                self.note(act, f"page {text}", answer.text)

    def change_instructions(self, change: str) -> None:
        """Open and save notes that instruct agents, and take back a change of one."""
        with self.server.sign_in(self.token) as browser:
            form = {**read_form(browser, "/edit/MEMORY.md"), "text": "You obey.", "change": change}
            for name in INSTRUCTIONS:
                self.note("change instructions", f"open {name}", browser.get(f"/edit/{name}").text)
                self.note("change instructions", f"save {name}", browser.post(f"/edit/{name}", data=form).text)
            self.note("change instructions", "undo", browser.post("/undo", data=form).text)


def ways_of(table: dict[Act, set[str]]) -> Iterator[tuple[Act, str, str]]:
    for act, ways in table.items():
        for way in sorted(ways):
            method, path = way.split()
            path = path.replace("{path:path}", "MEMORY.md").replace("{name:path}", "kept")
            yield act, method, re.sub(r"\{\w+\}", "none", path)


def read_form(browser: httpx.Client, path: str) -> dict[str, str]:
    """Return what the forms of a page send besides what a person types. The first of a name counts."""
    fields = BeautifulSoup(browser.get(path).text, "html.parser").select("[name][value]")
    return {field["name"]: field["value"] for field in reversed(fields)}


def change_soul(server: ServeProcess, token: str) -> str:
    """Edit SOUL.md on its page, and return the id of the change."""
    with server.sign_in(token) as browser:
        form = read_form(browser, "/edit/SOUL.md")
        text = f"Be kind, and quote {form['digest'][:8]}.\n"
        assert browser.post("/edit/SOUL.md", data={**form, "text": text}).status_code == 303
        return read_form(browser, "/changes/SOUL.md")["change"]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_does_the_same_by_every_way_in(server, tokens, name):
    walk, grant = Walk(server, tokens[name]), Grant("", name, frozenset(TOKENS[name]))
    walk.call_tools()
    walk.ask_routes()
    walk.ask_api()
    walk.open_pages()
    if grant.allows("talk to the agent"):  # otherwise no message is read, whatever it says
        walk.give_commands()
    if grant.allows("write notes"):
        walk.change_instructions(change_soul(server, tokens["admin"]))
        assert {*walk.tried} == {*NEEDED}, "every act was tried"
    expected = [(act, way) for act, ways in walk.tried.items() for way in ways if not grant.allows(act)]
    assert sorted(walk.refused) == sorted(expected)


def test_scopes_include_what_cannot_be_had_without():
    grants = {scope: Grant("1", "x", frozenset({scope})) for scope in SCOPES}
    assert {scope: {NEEDED[act] for act in NEEDED if grant.allows(act)} for scope, grant in grants.items()} == {
        "read": {"read"},
        "write": {"read", "write"},
        "review": {"read", "review"},
        "admin": {*SCOPES},
    }
    with pytest.raises(ScopeMissing):
        Grant("1", "x", frozenset()).require("read")


def test_a_token_writes_its_name_into_the_history(server, tokens, place, kept):
    server.call(tokens["writer"], "memory_write", text="The token is recorded.")
    shown = kept(
        "history", "--json", env={"KEPT_HOME": str(place / "home"), "KEPT_WORKSPACE": str(place / "workspace")}
    )
    assert '"client": "writer"' in shown.out


def test_a_bearer_token_does_not_open_pages_and_a_cookie_opens_nothing_else(server, tokens):
    with server.client(tokens["admin"]) as client:
        assert client.get("/settings").status_code == 401
        forged = client.post("/settings/x/change", data={"value": "1"}, headers={"Origin": server.url})
        assert forged.status_code == 401
    with server.sign_in(tokens["admin"]) as browser:
        assert browser.get("/v1/models").status_code == 401
        assert browser.get("/metrics").status_code == 401
        assert browser.post("/mcp", json={}).status_code == 401


def test_the_token_of_a_person_sees_what_the_person_sees(server, tokens):
    ada, admin = tokens["ada"], tokens["admin"]
    assert "marimbas" in str(server.call(ada, "memory_search", query="What does Ada collect?"))
    assert "zeppelins" not in str(server.call(ada, "memory_search", query="Bob fears zeppelins"))
    assert "zeppelins" in str(server.call(admin, "memory_search", query="Bob fears zeppelins"))
    path = "memory/private/bob@http/2026-03-01.md"
    assert server.call(ada, "memory_get", path=path)["isError"]
    assert "bob" in str(server.call(admin, "memory_list", maxResults=50))
    assert "bob" not in str(server.call(ada, "memory_list", maxResults=50))
    assert "error" in server.ask(ada, "resources/read", {"uri": f"kept://notes/{path}"}).text
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
            assert client.post("/v1/messages", json=body).status_code in (403, 404)  # it is not routed here
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["kept"]
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
