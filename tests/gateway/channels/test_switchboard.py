"""Several agents behind one gateway: routes, inboxes and queues of their own, and slots that they share."""

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from kept import Memory, SessionStore
from kept.config import load_config
from kept.config.gateway_settings import RouteSettings
from kept.errors import AgentNotFound, ConfigError
from kept.gateway.app import open_dispatcher
from kept.gateway.channel import Switchboard
from kept.gateway.channels.gateway import served_agents
from kept.gateway.dispatcher import Dispatcher
from kept.sessions.session_key import SessionKey
from kept.testing import FakeEmbedder, ScriptedChat
from tests.support.files import write_file
from tests.support.running_gateway import running_gateway
from tests.support.serve_process import bearer, create_token
from tests.support.waiting import PATIENCE_S, wait_until_async

ROUTES = [{"agent": "work", "channel": "http", "chat": "bob"}, {"agent": "work", "chat": "club"}]


def open_served(tmp_path: Path, name: str, model: ScriptedChat, **settings: object) -> Dispatcher:
    memory = Memory.open(
        home=tmp_path / "home",
        agent=name,
        embedder=FakeEmbedder(),
        create=True,
        settings={"gateway.http.port": 0, **settings},
    )
    return open_dispatcher(memory, SessionStore(memory.config), model)


@asynccontextmanager
async def two_agents(tmp_path: Path, main: ScriptedChat, work: ScriptedChat, *, routes=ROUTES, **settings: object):
    settings = {"gateway.routes": routes, **settings}
    first, other = (open_served(tmp_path, name, model, **settings) for name, model in (("main", main), ("work", work)))
    running = running_gateway(first.memory, main, sessions=first.sessions, others=[other])
    async with running as (gateway, _, lines):
        await wait_until_async(lambda: len(lines) > 1)
        url = lines[0].split()[1].partition("/v1")[0]
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
            yield gateway, client
    other.memory.close()
    other.sessions.close()


async def post(client: httpx.AsyncClient, **body: object) -> dict:
    return (await client.post("/v1/messages", json=body)).json()


def inbox_texts(tmp_path: Path, agent: str) -> list[str]:
    lines = (tmp_path / "home" / "agents" / agent / "inbox.jsonl").read_text().splitlines()
    return [record["text"] for line in lines if (record := json.loads(line)).get("text")]


@pytest.mark.parametrize(
    ("key", "agent"),
    [
        (SessionKey("main", "http", "default", "direct", "bob"), "work"),
        (SessionKey("main", "http", "default", "thread", "bob:plans"), "work"),
        (SessionKey("main", "telegram", "default", "direct", "bob"), "main"),
        (SessionKey("main", "http", "default", "direct", "ada"), "main"),
        (SessionKey("main", "http", "default", "group", "club"), "work"),
        (SessionKey("main", "telegram", "shop", "direct", "7"), "shop"),
        (SessionKey("main", "telegram", "default", "group", "-100:3"), "group"),
        (SessionKey("main", "telegram", "default", "group", "-1001"), "main"),
    ],
)
def test_the_first_route_that_fits_decides(key, agent):
    routes = [RouteSettings(**route) for route in ROUTES]
    routes += [RouteSettings("shop", account="shop"), RouteSettings("group", channel="telegram", chat="-100")]
    routes += [RouteSettings("never", chat="bob")] if key.channel == "http" else []
    assert Switchboard({}, routes, default="main").route(key).agent_id == agent


async def test_each_agent_answers_its_own_people_from_its_own_memory(tmp_path):
    main, work = ScriptedChat(lambda request: "I am main."), ScriptedChat(lambda request: "I am work.")
    async with two_agents(tmp_path, main, work) as (_, client):
        ada = await post(client, user="ada", text="Hello from Ada.", id="a1")
        bob = await post(client, user="bob", text="Hello from Bob.", id="b1")
        club = await post(client, user="ada", conversation="club", group=True, text="Hello from the club.")
        assert [answer["reply"] for answer in (ada, bob, club)] == ["I am main.", "I am work.", "I am work."]
        assert bob["conversation"] == "agent:work:http:default:direct:bob"
        assert (await client.get("/v1/messages/b1")).json()["reply"] == "I am work."
        assert (await client.get("/v1/messages/none")).status_code == 404
        status = await post(client, user="bob", text="/status")
        assert status["reply"].startswith("Agent work, ")
        assert (await post(client, user="ada", text="/status"))["reply"].startswith("Agent main, ")
    assert [text for text in inbox_texts(tmp_path, "main") if text.startswith("Hello")] == ["Hello from Ada."]
    assert "Hello from Bob." in inbox_texts(tmp_path, "work")
    assert not any("Bob" in str(request.turns) for request in main.requests)
    assert not any("Ada." in str(request.turns) for request in work.requests)


async def test_a_client_may_name_the_agent_and_an_id_belongs_to_one_message(tmp_path):
    main, work = ScriptedChat(lambda request: "I am main."), ScriptedChat(lambda request: "I am work.")
    routes = [*ROUTES, {"agent": "work", "channel": "openai", "chat": "bob"}]
    async with two_agents(tmp_path, main, work, routes=routes) as (_, client):
        assert (await post(client, agent="work", user="ada", text="Hello.", id="x"))["reply"] == "I am work."
        assert (await post(client, user="ada", text="Hello.", id="x"))["error"]["code"] == "message_conflict"
        unknown = await post(client, agent="nobody", user="ada", text="Hello.")
        assert unknown["error"]["message"] == "This gateway does not serve an agent 'nobody'."
        models = [model["id"] for model in (await client.get("/v1/models")).json()["data"]]
        assert models == ["kept", "kept/main", "kept/work"]
        for model, user, reply in (
            ("kept/work", "ada", "I am work."),
            ("kept", "bob", "I am work."),
            ("kept", "ada", "I am main."),
        ):
            body = {"model": model, "user": user, "messages": [{"role": "user", "content": "Hello."}]}
            answer = (await client.post("/v1/chat/completions", json=body)).json()
            assert answer["choices"][0]["message"]["content"] == reply


async def test_the_token_of_a_person_reaches_only_the_agent_of_their_chat(tmp_path):
    main, work = ScriptedChat(lambda request: "I am main."), ScriptedChat(lambda request: "I am work.")
    token = create_token(tmp_path / "home", "bob", "write", person="http:bob")
    routes = [{"agent": "work", "chat": "bob"}]
    async with two_agents(tmp_path, main, work, routes=routes) as (_, client):
        client.headers.update(bearer(token))
        assert (await post(client, text="Hello."))["reply"] == "I am work."
        assert (await post(client, text="Hello.", agent="work"))["reply"] == "I am work."
        assert (await post(client, text="Hello.", agent="main"))["error"]["code"] == "agent_not_found"
        assert (await client.post("/v1/messages", json={"text": "Hi", "agent": "none"})).status_code == 404
        body = {"model": "kept/main", "messages": [{"role": "user", "content": "Hello."}]}
        assert (await client.post("/v1/chat/completions", json=body)).status_code != 200
    assert main.requests == []


async def test_all_agents_together_answer_no_more_than_max_concurrent(tmp_path):
    under_way: list[str] = []
    most = 0

    class CountedChat(ScriptedChat):
        async def stream(self, request):
            nonlocal most
            under_way.append("answer")
            most = max(most, len(under_way))
            async for event in super().stream(request):
                yield event
            under_way.pop()

    main, work = CountedChat(lambda request: "Done."), CountedChat(lambda request: "Done.")
    async with two_agents(tmp_path, main, work, **{"gateway.auto_responder.max_concurrent": 1}) as (_, client):
        chats = [(user, f"chat {number}") for number in range(3) for user in ("ada", "bob")]
        replies = await asyncio.gather(
            *(post(client, user=user, conversation=chat, text="Hello.") for user, chat in chats)
        )
        assert [reply["reply"] for reply in replies] == ["Done."] * 6
    assert most == 1


def test_a_gateway_serves_the_agents_of_its_routes(tmp_path):
    home = tmp_path / "home"
    write_file(
        home / "config.yaml",
        "agents:\n  list:\n    - id: work\n      model: {name: small}\n    - id: idle\n"
        "gateway:\n  routes:\n    - {agent: work, channel: telegram, chat: '7'}\n    - {agent: main, chat: x}\n",
    )
    served = [agent.config for agent in served_agents(load_config(home=str(home), environ={}))]
    assert [config.agent_id for config in served] == ["main", "work"]
    assert served[1].agent.model.name == "small"
    assert served[0].workspace != served[1].workspace


@pytest.mark.parametrize(
    ("route", "error", "words"),
    [
        ("{agent: wrok}", AgentNotFound, "names an agent 'wrok'"),
        ("{channel: http}", ConfigError, r"gateway.routes\[0\]: 'agent' is missing"),
        ("{agent: main, chanel: http}", ConfigError, "there is no such setting"),
        ("main", ConfigError, "expected a group of settings"),
    ],
)
def test_a_route_that_cannot_be_meant_is_refused(tmp_path, route, error, words):
    home = tmp_path / "home"
    write_file(home / "config.yaml", f"gateway:\n  routes:\n    - {route}\n")
    with pytest.raises(error, match=words):
        served_agents(load_config(home=str(home), environ={}))
