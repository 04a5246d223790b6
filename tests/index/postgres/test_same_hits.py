"""A memory in a database finds the same as one in files: hits, order, grades, parts of scores, and what was dropped."""

import datetime as dt
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kept import Memory, SessionStore
from kept.sessions.entries import Message
from kept.storage.contract import Append, Remove, Write
from kept.storage.open import open_agent
from kept.testing import FakeEmbedder, FrozenClock

_numbers = count()
NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
WRITTEN_NS = int((NOW - dt.timedelta(days=20)).timestamp()) * 1_000_000_000

NOTES = {
    "MEMORY.md": "- The parrot is called Kiwi and is green. #animals/birds\n- Ada takes her tea without milk.\n",
    "memory/infra.md": "---\ntags: [infra]\naliases: [machines]\n---\n# Servers\n\n"
    "- The staging database runs on port 5432. (until 2026-11-03)\n- The staging database runs on port 5433.\n"
    "\n## Backups\n\nRun pg_dump every night at 02:30, see [[people/Ada]]. Kubernetes restores it.\n",
    "memory/people/Ada.md": "# Ada Lovelace\n\nAda lives in London and likes mathematics. Her timezone is UTC.\n\n"
    "- [x] buy her a present\n- [ ] send the invoice 4711\n",
    "memory/2026-11-10.md": "# 2026-11-10\n\nWe decided to postpone the release. #decision\n\n* * *\n\n"
    "The oven was repaired.\n",
    "memory/2026-11-21.md": "# 2026-11-21\n\nThe release is on Friday. The oven broke again.\n",
    "memory/projects/atlas/notes.md": "# Atlas\n\nAtlas uses getUserName and port 8080 for the API.\n",
    "memory/private/bob/diary.md": "Bob keeps his spare key below the mat.\n",
    "memory/scripts.md": "# Sprachen\n\nDie Prüfung der Straße dauert länger.\n\nΟ παπαγάλος λέγεται Κίουι.\n\n"
    "Попугая зовут Киви.\n\nالببغاء اسمه كيوي.\n\nהתוכי נקרא קיווי.\n\nतोते का नाम कीवी है।\n\n"
    "นกแก้วชื่อกีวีและมีสีเขียว\n\n"
    "鹦鹉的名字叫奇异果，它是绿色的。\n\nオウムの名前はキウイです。\n\n앵무새의 이름은 키위입니다.\n",
}
TALK = [
    "Where is the spare key?",
    "The spare key is under the flower pot.",
    "And which port has staging?",
    "Port 5433, I think.",
]
QUERIES = [
    "what is the parrot called", "which port does the staging database use", "Ada Lovelace", '"spare key"',
    "where is the key", "stagging databse", "postgres backup", "k8s", "getUserName", "user name of atlas",
    "time zone", "run ran running", "Prüfung Straße", "παπαγάλος", "попугай", "ببغاء", "תוכי", "तोते",
    "นกแก้ว สีเขียว", "鹦鹉叫什么", "オウムの名前", "앵무새 이름", "what did we decide about the release in November",
    "oven", "invoice 4711", "port", "zzz nonsense qqq",
]  # fmt: skip
FILTERS = [
    {},
    {"source": "memory"},
    {"source": "sessions"},
    {"path": "memory/infra.md"},
    {"path": "memory/people"},
    {"path": "memory/*[0-9]*.md"},
    {"path": "memory/[^0-9]*"},
    {"tags": ["infra"]},
    {"tags": ["animals"]},
    {"since": dt.date(2026, 11, 15)},
    {"until": dt.date(2026, 11, 15)},
    {"as_of": dt.date(2026, 11, 1)},
    {"session_key": "telegram:5054"},
    {"channel": "telegram"},
    {"project": "none"},
    {"project": "atlas"},
    {"source": "memory", "path": "memory/*", "since": dt.date(2026, 11, 1), "tags": ["decision"]},
]


def open_memories(tmp_path, address):
    """Return a memory in files and one in a database."""
    both = []
    for name in ("files", "database"):
        config = Memory.open(tmp_path / name, home=tmp_path / f"{name}-home", create=True).config
        if name == "database":
            config = replace(config, database=address)
        both.append(Memory(config, embedder=FakeEmbedder(), clock=FrozenClock(NOW)))
    return both


def write(memory, path, text):
    memory.workspace.storage.commit([Write(path, text.encode(), modified_ns=WRITTEN_NS)])


def describe(result):
    hits = [
        (
            hit.citation,
            hit.grade,
            round(hit.score, 9),
            [(part.name, round(part.value, 9), part.detail) for part in hit.parts],
            hit.snippet,
            [passage.citation for passage in hit.further],
            [other.path for other in hit.also_in],
        )
        for hit in result.hits
    ]
    return hits, sorted((dropped.citation, dropped.reason) for dropped in result.dropped), result.degraded


@pytest.fixture
def filled(tmp_path, database_address):
    files, database = both = open_memories(tmp_path, database_address)
    with SessionStore(files.config, clock=FrozenClock(NOW)) as sessions:
        record = sessions.get_or_create("telegram", "5054")
        for at, text in enumerate(TALK):
            sessions.append(record.id, Message.of("assistant" if at % 2 else "user", text))
    transcripts = open_agent(files.config)
    lines = [line.data for line in transcripts.logs.read(record.log)]
    open_agent(database.config).commit([Append(record.log, lines)])
    for memory in both:
        for path, text in NOTES.items():
            write(memory, path, text)
    yield both
    for memory in both:
        memory.close()


@pytest.mark.parametrize("chosen", FILTERS, ids=str)
def test_every_filter_lets_the_same_through(filled, chosen):
    files, database = filled
    found = 0
    for query in QUERIES:
        expected = files.search(query, **chosen)
        assert describe(database.search(query, **chosen)) == describe(expected), query
        found += len(expected.hits)
    assert found, "nothing passed the filter"


def test_a_new_fact_is_compared_with_the_same_notes(filled):
    for text, is_near in (("The staging database runs on port 5434.", True), ("The oven was sold.", False)):
        near = []
        for memory in filled:
            memory.search("port")
            near.append([(fact.citation, fact.relation) for fact in memory.add(text, to="memory/new.md").near])
        assert near[0] == near[1], text
        assert bool(near[0]) == is_near, text


def test_lists_tags_links_and_people_see_the_same(filled):
    files, database = filled
    for ask in (
        lambda memory: [(row.path, row.title, row.excerpt) for row in memory.list()],
        lambda memory: [(row.path, row.title) for row in memory.list(source="sessions")],
        lambda memory: [(tag.tag, tag.notes) for tag in memory.notes.tags()],
        lambda memory: [
            (link.path, link.line, link.resolved) for link in memory.notes.links("memory/people/Ada.md").incoming
        ],
        lambda memory: [hit.citation for hit in memory.search("yesterday", since=dt.date(2026, 10, 1))],
        lambda memory: [describe(memory.as_person("telegram:5054").search(query)) for query in QUERIES],
        lambda memory: [describe(memory.as_person("http:bob").search(query)) for query in QUERIES],
        lambda memory: memory.status().source_counts,
    ):
        assert ask(database) == ask(files)


class TwoMemories(RuleBasedStateMachine):
    """Any sequence of changes: both memories answer the same, and the index in the database is that of a rebuild."""

    address = ""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.both = open_memories(Path(self.folder.name), f"{self.address}{next(_numbers)}")
        for memory in self.both:
            memory.workspace.make()

    def teardown(self):
        for memory in self.both:
            memory.close()
        self.folder.cleanup()

    @rule(path=st.sampled_from([*NOTES]), source=st.sampled_from([*NOTES.values()]), more=st.sampled_from(TALK))
    def write(self, path, source, more):
        for memory in self.both:
            write(memory, path, f"{source}\n{more}\n")

    @rule(path=st.sampled_from([*NOTES]))
    def remove(self, path):
        for memory in self.both:
            memory.workspace.storage.commit([Remove(path)])

    @rule()
    def rebuild(self):
        for memory in self.both:
            memory.sync(force=True)

    @invariant()
    def both_find_the_same(self):
        files, database = self.both
        for query in QUERIES[:12]:
            assert describe(database.search(query)) == describe(files.search(query)), query
        assert database.index_service.index().find_damage() == []


def test_any_sequence_of_changes_leads_to_the_same_hits(database_address):
    TwoMemories.address = f"{database_address}_"
    run_state_machine_as_test(
        TwoMemories,
        settings=settings(
            max_examples=8,
            stateful_step_count=8,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
