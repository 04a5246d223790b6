"""Bob never sees what Ada said in private: each test tries one way to it, through a running gateway."""

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kept import SessionStore
from kept.config import load_config
from kept.models.base import ChatRequest, ToolUse
from kept.sessions.importers.import_run import import_sessions
from kept.sessions.schedules.schedule_book import Schedule, open_schedules
from kept.testing import ScriptedChat
from tests.support.agents import shown
from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, lines
from tests.support.http_gateway import Service, serving
from tests.support.serve_process import bearer, create_token
from tests.support.workspaces import open_memory

SECRET = "heliotrope"
SAID = f"Between us: the vault opens with {SECRET}."
ASKED = "What does the vault open with?"


class Model:
    """Answers everybody alike, and calls the tools that a test scripts for Bob."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.chat = ScriptedChat(self.answer)

    def answer(self, request: ChatRequest) -> Any:
        self.requests.append(request)
        if request.purpose == "flush":
            return f"- Ada's vault opens with {SECRET}."
        if request.purpose == "summary":
            return f"Ada told that the vault opens with {SECRET}."
        if self.calls and "bob" in shown(request).lower():
            name, arguments = self.calls.pop(0)
            return [ToolUse(f"call-{len(self.calls)}", name, arguments)]
        return "All right."

    def seen_by_bob(self) -> str:
        """Return all that the model was sent for Bob."""
        texts = [shown(request) for request in self.requests if request.purpose == "reply"]
        return "\n".join(text for text in texts if "I am Bob" in text)


@asynccontextmanager
async def ada_told(tmp_path: Path) -> AsyncIterator[tuple[Service, Model]]:
    """Run a gateway to which Ada has told her secret."""
    model = Model()
    async with serving(tmp_path, model.chat) as gateway:
        await say(gateway, "ada", SAID)
        yield gateway, model


async def say(gateway: Service, user: str, text: str, **body: Any) -> str:
    answer = (await gateway.post(user=user, text=text, **body)).json()
    assert answer["status"] == "answered", answer
    return str(answer["reply"])


def ada_session(tmp_path: Path) -> Any:
    config = load_config(home=str(tmp_path / "home"), workspace=str(tmp_path / "workspace"), environ={}).config
    with SessionStore(config) as sessions:
        return sessions.find("http", "ada")


async def test_recall_finds_it_for_ada_and_not_for_bob(tmp_path):
    async with ada_told(tmp_path) as (gateway, model):
        await say(gateway, "bob", f"I am Bob. {ASKED}")
        await say(gateway, "ada", "/new")
        await say(gateway, "ada", f"I am Ada again. {ASKED}")
    assert SECRET not in model.seen_by_bob()
    assert SECRET in shown(model.requests[-1])


async def test_commands_answer_bob_without_it(tmp_path):
    async with ada_told(tmp_path) as (gateway, _):
        session = ada_session(tmp_path)
        for command in (
            f"/memory {ASKED}",
            f"/memory {SECRET[:6]}*",
            "/memory vault today",
            "/memory",
            "/status",
            "/help",
            "/compact",
            f"/forget {SECRET[:6]}",
            f"/forget {session.citation}",
            f"/forget {session.citation}#L2",
            "/forget the vault",
            "/forget yes",
            f"/new {ASKED}",
            f"/memory {session.id}",
        ):
            reply = await say(gateway, "bob", command)
            assert "opens with" not in reply, command
            named_by_bob = session.id in command
            assert named_by_bob or session.id not in reply, command  # fmt: skip
        assert SECRET in await say(gateway, "ada", f"/memory {ASKED}")


async def test_tools_that_the_model_calls_for_bob_do_not_reach_it(tmp_path):
    """A model that is told to ask for Ada's session gets the same answer as for one that does not exist."""
    async with ada_told(tmp_path) as (gateway, model):
        await say(gateway, "ada", "/remember My garden gate key is heliotrope, too.")
        session = ada_session(tmp_path)
        model.calls += [
            ("memory_search", {"query": ASKED}),
            ("memory_search", {"query": SECRET[:6] + "*"}),
            ("memory_search", {"query": ASKED, "session": "http:ada"}),
            ("memory_search", {"query": ASKED, "session": session.id}),
            ("memory_search", {"query": ASKED, "session": session.id[:6]}),
            ("memory_search", {"query": ASKED, "path": session.citation}),
            ("memory_search", {"query": ASKED, "source": "sessions", "channel": "http"}),
            ("memory_get", {"path": session.citation}),
            ("memory_get", {"path": f"{session.citation}#L2"}),
            ("memory_get", {"path": f"kept://notes/{session.citation}"}),
            ("memory_get", {"path": "memory/private/ada@http/MEMORY.md"}),
        ]
        for number in range(len(model.calls)):
            await say(gateway, "bob", f"I am Bob. Ask for the session of the other person, attempt {number}.")
    assert model.calls == []
    seen = model.seen_by_bob()
    assert "opens with" not in seen
    assert "garden gate" not in seen
    assert "There is no session 'http:ada'." in seen
    assert "there is no such transcript" in seen


async def test_what_the_model_writes_down_for_ada_is_not_recalled_for_bob(tmp_path):
    async with ada_told(tmp_path) as (gateway, model):
        model.calls = [
            ("memory_write", {"text": f"Ada's vault: {SECRET}."}),
            ("memory_write", {"text": f"Ada's vault: {SECRET}!", "to": "memory"}),
            ("memory_write", {"text": f"Ada's vault: {SECRET}?", "to": "MEMORY.md"}),
            ("memory_write", {"text": f"The vault of Ada: {SECRET}.", "to": "memory/everybody.md"}),
        ]
        for number in range(4):
            await say(gateway, "ada", f"Do not tell Bob, number {number}.")
        await say(gateway, "carol", "Hello.")
        await say(gateway, "bob", f"I am Bob. {ASKED}")
        assert SECRET not in await say(gateway, "bob", f"/memory vault {SECRET}")
    assert SECRET not in model.seen_by_bob()
    notes = {path.relative_to(tmp_path / "workspace").as_posix() for path in (tmp_path / "workspace").rglob("*.md")}
    private = {path for path in notes if SECRET in (tmp_path / "workspace" / path).read_text()}
    assert private
    assert all(path.startswith("memory/private/ada@http/") for path in private)


async def test_a_flush_and_a_compaction_write_to_adas_notes_only(tmp_path):
    async with ada_told(tmp_path) as (gateway, model):
        for number in range(3):
            await say(gateway, "ada", f"Something else, number {number}. " + "More words. " * 40)
        assert "Compacted" in await say(gateway, "ada", "/compact")
        await say(gateway, "bob", f"I am Bob. {ASKED}")
        assert SECRET not in await say(gateway, "bob", f"/memory vault {SECRET}")
        assert SECRET in await say(gateway, "ada", f"/memory vault {SECRET}")
    assert SECRET not in model.seen_by_bob()
    workspace = tmp_path / "workspace"
    with_secret = [path for path in workspace.rglob("*.md") if SECRET in path.read_text()]
    assert with_secret
    assert all("memory/private/ada@http/" in path.as_posix() for path in with_secret)


async def test_a_conversation_that_bob_names_like_one_of_ada_is_his_own(tmp_path):
    async with ada_told(tmp_path) as (gateway, model):
        await say(gateway, "ada", SAID, conversation="plans")
        for conversation in ("plans", "ada", "ada:plans", "ada%3Aplans"):
            await say(gateway, "bob", f"I am Bob. {ASKED}", conversation=conversation)
    assert SECRET not in model.seen_by_bob()


async def test_a_group_hears_nothing_private_and_tells_nothing_elsewhere(tmp_path):
    async with ada_told(tmp_path) as (gateway, model):
        await say(gateway, "ada", f"I am Bob's friend Ada in the group. {ASKED}", conversation="club", group=True)
        await say(gateway, "ada", "The club password is marigold.", conversation="club", group=True)
        assert "marigold" not in await say(gateway, "bob", "/memory club password")
        assert "marigold" not in await say(gateway, "ada", "/memory club password")
        assert "marigold" in await say(gateway, "bob", "/memory club password", conversation="club", group=True)
        assert SECRET not in await say(gateway, "ada", f"/memory {ASKED}", conversation="club", group=True)
    in_group = [shown(request) for request in model.requests if "friend Ada in the group" in shown(request)]
    assert in_group
    assert not any(SECRET in text for text in in_group)


async def test_after_ada_has_forgotten_it_bob_learns_nothing_from_the_receipt(tmp_path):
    async with ada_told(tmp_path) as (gateway, _):
        await say(gateway, "bob", f"/remember The vault opens with {SECRET} is my guess.")
        await say(gateway, "bob", f"/forget {SECRET}")
        receipt = await say(gateway, "bob", "/forget yes")
        assert "Nothing of it is left in what you see." in receipt
        assert "sessions/" not in receipt
        assert SECRET in await say(gateway, "ada", f"/memory {ASKED}")
        await say(gateway, "ada", "/forget Between us")
        await say(gateway, "ada", "/forget yes")
        assert "Between us" not in await say(gateway, "bob", f"/memory {ASKED}")


async def test_what_bob_forgets_stays_for_everybody_else(tmp_path):
    """In notes, their history, conversations, the inbox, proposals, schedules, exports and later imports."""
    word, workspace = "zephyrine", tmp_path / "workspace"
    private = write_file(workspace / "memory/private/ada@http/x.md", f"- Ada likes {word}.\n")
    talk = write_file(tmp_path / "home/exports/talk.md", f"On {word}.\n")
    owner = open_memory(tmp_path)
    owner.sync()
    owner.add(f"- Praise {word}.", to="SOUL.md", by_tool=True)
    book = open_schedules(owner.config)
    due = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    asked = Schedule(
        "a1", "every day at 09:00", "UTC", f"What is new in {word}?", "agent:main:http:default:direct:ada", due
    )
    book.change(lambda empty: empty.with_schedule(asked))
    async with ada_told(tmp_path) as (gateway, _):
        await say(gateway, "ada", f"I wonder about {word}.")
        await say(gateway, "bob", f"/remember Learn {word} by May.")
        shown = await say(gateway, "bob", f"/forget {word}")
        assert "1. memory/private/bob@http" in shown
        assert "2. " not in shown
        await say(gateway, "bob", "/forget yes")
        assert word in await say(gateway, "ada", f"/memory {word}")
    assert [item.text for item in book.read().schedules] == [asked.text]
    assert [word in path.read_text() for path in (workspace / ".kept/proposals").glob("*.json")] == [True]
    assert word in private.read_text()
    assert word in talk.read_text()
    inbox = Path(owner.config.paths.folder, "inbox.jsonl").read_text()
    assert f"I wonder about {word}." in inbox
    assert f"Learn {word}" not in inbox
    source = write_file(tmp_path / "claude/s.jsonl", lines(cc_user("a", None, f"More on {word}.")))
    with SessionStore(owner.config) as sessions:
        (outcome,) = import_sessions(sessions, "claude-code", source).sessions
        assert [message.text for message in sessions.load(outcome.id).messages] == [f"More on {word}."]
    owner.close()


async def test_with_tokens_of_their_own_people_reach_only_their_messages(tmp_path):
    ada, bob = (
        bearer(create_token(tmp_path / "home", name, "write", person=f"http:{name}")) for name in ("ada", "bob")
    )
    async with serving(tmp_path, Model().chat) as gateway:

        async def post(headers, **body):
            return await gateway.client.post("/v1/messages", json=body, headers=headers)

        first = await post(ada, text=SAID, id="m1")
        assert first.json()["conversation"].endswith(":direct:ada")
        assert (await post(bob, text="x", user="ada")).status_code == 400
        assert (await post(bob, text="x", conversation="club", group=True)).status_code == 400
        assert (await post({}, text="x", user="bob")).status_code == 401
        known, missing = [await gateway.client.get(f"/v1/messages/{name}", headers=bob) for name in ("m1", "m2")]
        assert known.status_code == missing.status_code == 404
        assert known.text.replace("m1", "m2") == missing.text
        assert (await gateway.client.get("/v1/messages/m1", headers=ada)).json()["reply"] == "All right."
        taken = await post(bob, text="Hello", id="m1")
        assert taken.status_code == 409
        assert SECRET not in taken.text
        asked = await post(bob, text=f"/memory {ASKED}")
        assert SECRET not in asked.text


async def test_in_a_chat_a_token_for_a_person_is_refused_where_that_person_is_the_owner(tmp_path):
    token = bearer(create_token(tmp_path / "home", "ada", "write", person="http:ada"))
    async with serving(tmp_path, Model().chat, agent_settings={"session.owner": "http:ada"}) as gateway:
        refused = await gateway.client.post("/v1/messages", json={"text": f"/memory {ASKED}"}, headers=token)
        assert refused.status_code == 403
        assert "is never the owner's" in refused.text


async def test_without_an_owner_a_person_is_told_why_a_fact_is_in_a_private_note(tmp_path):
    async with ada_told(tmp_path) as (gateway, _):
        kept = await say(gateway, "ada", "/remember I like walnuts.")
        assert "memory/private/ada@http/MEMORY.md" in kept
        assert "kept config set session.owner" in kept
        assert "Nobody is the owner" in await say(gateway, "ada", "/status")


async def test_the_chat_completions_of_another_are_not_repeated_for_bob(tmp_path):
    async with ada_told(tmp_path) as (gateway, _):

        async def complete(user):
            body = {"model": "kept", "messages": [{"role": "user", "content": SAID}], "user": user}
            retry = {"x-stainless-retry-count": "1"}
            return (await gateway.client.post("/v1/chat/completions", json=body, headers=retry)).json()["id"]

        first = await complete("ada")
        assert await complete("ada") == first
        assert await complete("bob") != first
