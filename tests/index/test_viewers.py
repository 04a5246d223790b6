"""A memory as one person sees it: what others said or wrote in private is not there, by any way to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kept import Memory, SessionStore
from kept.agent.tools.toolbox import Toolbox
from kept.base.grants import Grant
from kept.errors import KeptError, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.server.mcp.server import toolbox_of
from kept.sessions.entries import Message
from tests.support.workspaces import open_memory, write_note

SECRET = "The vault combination is heliotrope."
LINKS = {"session.identity_links": {"ada": ["telegram:5054", "http:ada"]}}


class Household:
    """Ada and Bob with private conversations and notes, a group, and what is shared."""

    def __init__(self, tmp_path: Path, **settings: object) -> None:
        self.tmp_path = tmp_path
        self.workspace = tmp_path / "workspace"
        self.memory = open_memory(tmp_path, settings=dict(settings))
        self.transcripts: dict[str, str] = {}
        with SessionStore(self.memory.config) as sessions:
            for channel, user, chat_type, text in (
                ("http", "ada", "direct", SECRET),
                ("http", "bob", "direct", "My combination lock is blue."),
                ("telegram", "-100", "group", "The combination of cheese and grapes is for the group."),
                ("terminal", "main", "direct", "The owner noted a combination of colours."),
            ):
                record = sessions.get_or_create(channel, user, chat_type=chat_type)
                sessions.append(record.id, Message.of("user", text))
                self.transcripts[user] = record.citation
        write_note(self.workspace, "MEMORY.md", "# Memory\n\n- The shared combination printer is on floor 2.\n")
        write_note(
            self.workspace,
            "memory/private/ada@http/2026-03-14.md",
            "# Lock\n\nAda keeps the combination in a teapot. #teapot [[Shared plan]]\n",
        )
        write_note(self.workspace, "memory/plan.md", "# Shared plan\n\nA combination of plans. #plan [[2026-03-14]]\n")
        write_note(self.workspace, "memory/private/loose.md", "A loose combination.\n")

    def texts(self, person: str | None, query: str = "combination", **filters: object) -> str:
        memory = self.memory if person is None else self.memory.as_person(person)
        result = memory.search(query, max_results=50, min_score=0.0, **filters)
        passages = [passage for hit in result.hits for passage in (hit, *hit.further)]
        return "\n".join([*(passage.snippet for passage in passages), *result.degraded])


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Household]:
    household = Household(tmp_path)
    with household.memory:
        yield household


EVERYTHING = {"heliotrope", "teapot", "blue", "cheese", "colours", "printer", "plans", "loose"}


@pytest.mark.parametrize(
    ("person", "seen"),
    [
        (None, EVERYTHING),
        ("http:ada", {"heliotrope", "teapot", "printer", "plans"}),
        ("http:bob", {"blue", "printer", "plans"}),
        ("telegram:group:-100", {"cheese", "printer", "plans"}),
        ("telegram:5054", {"printer", "plans"}),
    ],
)
def test_a_search_finds_what_is_shared_and_what_is_ones_own(home, person, seen):
    found = home.texts(person)
    assert {words for words in EVERYTHING if words in found} == seen


@pytest.mark.parametrize("query", ["heliotrope", '"vault combination"', "vault combination heliotrope", "heliotrop*"])
def test_words_phrases_and_prefixes_find_nothing_of_others(home, query):
    assert "heliotrope" in home.texts("http:ada", query)
    assert "heliotrope" not in home.texts("http:bob", query)


def test_filters_cannot_reach_what_others_said(home):
    for filters in (
        {"session_key": "http:ada"},
        {"session_key": "agent:main:http:default:direct:ada"},
        {"path": home.transcripts["ada"]},
        {"path": "memory/private/*"},
        {"source": "sessions"},
        {"channel": "http"},
        {"since": "2020-01-01"},
        {"tags": ["teapot"]},
    ):
        assert "heliotrope" not in home.texts("http:bob", **filters)
        assert "teapot" not in home.texts("http:bob", **filters).replace("'teapot'", "").replace("#teapot", "")


def test_a_key_an_id_or_a_beginning_of_one_finds_only_ones_own_sessions(home):
    with SessionStore(home.memory.config) as sessions:
        ids = {record.user_id: record.id for record in sessions.recent()}
    bob = home.memory.as_person("http:bob")
    assert bob.search("combination", session=ids["bob"]).hits
    key = "agent:main:http:default:direct:ada"
    for reference in ("http:ada", home.transcripts["ada"], key, ids["ada"], ids["ada"][:8], "unknown"):
        with pytest.raises(SessionNotFound) as refused:
            bob.search("combination", session=reference)
        assert refused.value.message == f"There is no session '{reference}'."


@pytest.mark.parametrize(
    "path",
    [
        "memory/private/ada@http/2026-03-14.md",
        "memory/private/ada@http/2026-03-14.md#L1-L3",
        "memory//private/./ada@http/2026-03-14.md",
        "memory/private/ada@http/2026-03-14",
        "memory/private/loose.md",
        "2026-03-14",
        "Lock",
    ],
)
def test_a_private_note_is_read_by_nobody_else(home, path):
    bob = home.memory.as_person("http:bob")
    with pytest.raises(KeptError) as refused:
        bob.read(path)
    assert "teapot" not in str(refused.value)
    if not path.endswith("loose.md"):
        assert "teapot" in home.memory.as_person("http:ada").read(path).text


def test_an_absolute_path_to_a_private_note_is_refused_like_a_missing_one(home):
    bob = home.memory.as_person("http:bob")
    for name in ("2026-03-14.md", "missing.md"):
        path = f"memory/private/ada@http/{name}"
        with pytest.raises(NoteNotFound) as refused:
            bob.read(str(home.workspace / path))
        assert refused.value.message == f"{path}: there is no such note."


def test_the_transcript_of_another_is_refused_like_a_missing_one(home):
    bob = home.memory.as_person("http:bob")
    for path in (home.transcripts["ada"], "sessions/missing.jsonl", home.transcripts["main"]):
        for cited in (path, f"{path}#L2"):
            with pytest.raises(SessionNotFound) as refused:
                bob.read(cited)
            assert refused.value.message == f"{path}: there is no such transcript."
    assert "blue" in bob.read(home.transcripts["bob"]).text


def test_lists_tags_and_links_leave_out_what_is_private(home):
    ada, bob = home.memory.as_person("http:ada"), home.memory.as_person("http:bob")
    assert {file.path for file in bob.list(source=None)} == {"MEMORY.md", "memory/plan.md", home.transcripts["bob"]}
    assert bob.list(source=None, order="change").total == 3
    assert [tag.tag for tag in bob.notes.tags()] == ["plan"]
    assert [tag.tag for tag in ada.notes.tags()] == ["plan", "teapot"]
    links = bob.notes.links("Shared plan")
    assert [link.resolved for link in links.outgoing] == [None]
    assert links.incoming == ()
    assert [link.path for link in ada.notes.links("Shared plan").incoming] == ["memory/private/ada@http/2026-03-14.md"]
    assert [link.target for link in bob.notes.broken_links()] == ["2026-03-14"]
    for name in ("Lock", "memory/private/ada@http/2026-03-14.md"):
        with pytest.raises(NoteNotFound):
            bob.notes.links(name)


def test_hints_about_filters_name_nothing_of_others(home):
    assert "telegram" not in home.texts("http:bob", channel="nowhere")
    assert "teapot?" not in home.texts("http:bob", tags=["teapots"])


def test_notes_of_a_person_are_written_to_their_folder(home):
    ada, bob = home.memory.as_person("http:ada"), home.memory.as_person("http:bob")
    daily = ada.add("My doctor is called Quill.")
    lasting = ada.add("I am allergic to walnuts.", to="memory")
    named = ada.add("A walnut list.", to="walnuts.md")
    assert daily.path.startswith("memory/private/ada@http/")
    assert daily.path.endswith(".md")
    assert lasting.path == ada.add("I like tea.", to="MEMORY.md").path == "memory/private/ada@http/MEMORY.md"
    assert named.path == "memory/private/ada@http/walnuts.md"
    assert "Quill" in home.texts("http:ada", "doctor Quill")
    assert "Quill" not in home.texts("http:bob", "doctor Quill")
    assert not any("walnut" in fact.text for fact in bob.add("I am allergic to walnuts, too.").near)


def test_a_private_conversation_writes_no_note_that_others_read(home):
    ada = home.memory.as_person("http:ada")
    for to in ("memory/plan.md", "memory/private/bob@http/x.md", "memory/private/../plan.md", "memory/new.md"):
        with pytest.raises(PathRefused):
            ada.add("My secret.", to=to, by_tool=True)
    with pytest.raises(PathRefused):
        ada.add("The shared printer is on floor 3.", replaces="MEMORY.md#L3")
    with pytest.raises(NoteNotFound):
        ada.add("Mine.", replaces="memory/private/bob@http/x.md#L1")
    assert "secret" not in (home.workspace / "memory/plan.md").read_text()


def test_identity_links_and_their_removal_hold_at_once(tmp_path):
    household = Household(tmp_path, **LINKS)
    with household.memory:
        assert "heliotrope" in household.texts("telegram:5054")
        assert "teapot" in household.texts("ada")
        assert household.memory.as_person("ada").add("Mine.").path.startswith("memory/private/ada/")
        assert "heliotrope" not in household.texts("http:bob")
    with open_memory(tmp_path) as unlinked:
        assert "heliotrope" not in str(unlinked.as_person("telegram:5054").search("heliotrope").hits)
        assert "Mine." not in str(unlinked.as_person("http:ada").search("Mine.").hits)


def test_a_person_forgets_only_what_they_see(home):
    bob, ada = home.memory.as_person("http:bob"), home.memory.as_person("http:ada")
    plan = bob.forgetting.plan("combination")
    assert {place.path for place in plan.places} == {"MEMORY.md", "memory/plan.md", home.transcripts["bob"]}
    note = "memory/private/ada@http/2026-03-14.md"
    assert not [place for place in bob.forgetting.plan(note).places if "teapot" in place.text]
    for query in (home.transcripts["ada"], f"{note}#L3", "memory//private/./ada@http/2026-03-14.md#L3"):
        with pytest.raises((SessionNotFound, NoteNotFound)):
            bob.forgetting.plan(query)
    assert not [place for place in bob.forgetting.plan("heliotrope").places if "heliotrope" in place.text]
    ada.forgetting.apply(ada.forgetting.plan("heliotrope"))
    assert "heliotrope" not in home.texts(None)
    assert "teapot" in home.texts("http:ada")
    assert "teapot" not in home.texts("http:bob")


def test_a_token_for_a_person_is_never_the_owners(tmp_path):
    household = Household(tmp_path, **{"session.owner": "http:ada"})
    with household.memory as memory, SessionStore(memory.config) as sessions:
        assert "colours" in household.texts("http:ada")
        assert "loose" in household.texts("http:ada")
        grant = Grant("1", "ada", frozenset({"read", "write"}), person="http:ada")
        toolbox = toolbox_of(Toolbox(memory, sessions), grant)
        found = toolbox.run("memory_search", {"query": "combination", "maxResults": 50}).text
        assert "heliotrope" in found
        assert "colours" not in found
        assert toolbox.run("memory_get", {"path": "memory/private/loose.md"}).is_error
        assert toolbox.run("memory_get", {"path": household.transcripts["main"]}).is_error
        assert toolbox.memory.add("Mine.").path.startswith("memory/private/ada@http/")


def test_the_history_and_what_waits_for_review_are_not_open_to_a_person_or_a_project(tmp_path):
    household = Household(tmp_path, **{"review.agent_writes": "proposed"})
    write_note(household.workspace, "memory/projects/otter/PROJECT.md", "# Otter\n")
    with household.memory as memory, Memory.open(household.workspace, home=tmp_path / "home", project="otter") as otter:
        written = memory.as_person("http:ada").add("My diagnosis is a secret.", by_tool=True)
        assert written.is_proposed
        assert [item.id for item in memory.review.list().items] == [written.review]
        for bound in (memory.as_person("http:bob"), otter):
            for part in ("history", "review"):
                with pytest.raises(UsageError, match="texts of everybody"):
                    getattr(bound, part)
            assert "diagnosis" not in str(bound.search("diagnosis", min_score=0.0).hits)
            assert not bound.add("My diagnosis is a secret, too.", to="memory", by_tool=True).near


def test_the_status_tells_of_what_is_visible(home):
    home.memory.sync()
    toolbox = Toolbox(home.memory.as_person("http:bob"), SessionStore(home.memory.config))
    status = toolbox.run("memory_status", {})
    assert status.result.files == 3
    assert "of 1 in all" in status.text
    assert "> tags: #plan (1)" in status.text
    assert "teapot" not in status.text
    listed = toolbox.run("sessions_search", {})
    assert [record.key for record, _ in listed.result] == ["agent:main:http:default:direct:bob"]
    found = toolbox.run("sessions_search", {"query": "combination"})
    assert "heliotrope" not in found.text
    for reference in ("http:ada", home.transcripts["ada"]):
        refused = toolbox.run("sessions_search", {"session": reference})
        assert refused.is_error
        assert refused.result.message == f"There is no session '{reference}'."
    toolbox.sessions.close()


def test_forgetting_a_person_removes_their_private_notes_too(tmp_path):
    household = Household(tmp_path, **LINKS)
    with household.memory as memory:
        memory.as_person("ada").add("Mine alone.")
        plan = memory.forgetting.plan(person="ada")
        paths = {place.path for place in plan.places}
        assert household.transcripts["ada"] in paths
        assert "memory/private/ada@http/2026-03-14.md" in paths
        assert any(path.startswith("memory/private/ada/") for path in paths)
        memory.forgetting.apply(plan)
        assert not any(words in household.texts(None) for words in ("heliotrope", "teapot", "Mine alone"))
        assert "blue" in household.texts("http:bob")
