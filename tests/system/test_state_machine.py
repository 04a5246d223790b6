"""After any sequence of writes, edits, renames, deletions, failures and syncs, the index equals a fresh rebuild."""

import datetime as dt
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kept import Memory, Message, SessionStore
from kept.index.sqlite.integrity import find_damage
from kept.sessions.entries import SessionStart
from kept.testing import FakeEmbedder, FrozenClock
from tests.support.index_dump import dump_index

NAMES = st.sampled_from(["MEMORY.md", "USER.md", "memory/a.md", "memory/b.md", "memory/2026-01-01.md", "memory/x/c.md"])
BODIES = st.lists(
    st.sampled_from(
        ["# One", "## Two", "parrot green", "- zeppelin silver", "", "```", "ข้าวผัดกุ้ง", "北京大学", "word " * 120]
    ),
    max_size=12,
).map("\n".join)
USERS = st.sampled_from(["ann", "bob"])
SAID = ["The parrot is green.", "A zeppelin.", "大学", "กุ้ง " * 90, "word " * 120, "line\n" * 500]
NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.UTC)


class Index(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-machine-"))
        self.workspace = self.folder / "workspace"
        (self.workspace / "memory" / "x").mkdir(parents=True)
        self.embedder = FakeEmbedder()
        self.memory = self.open()
        self.in_step = False

    def open(self) -> Memory:
        home = self.folder / "home"
        return Memory.open(self.workspace, home=home, embedder=self.embedder)

    def transcript(self, user: str) -> Path | None:
        return next((self.folder / "home/agents/main/sessions").glob(f"*{user}.jsonl"), None)

    @rule(user=USERS, texts=st.lists(st.sampled_from(SAID), min_size=1, max_size=4))
    def talk(self, user, texts):
        roles = ("user", "assistant", "tool")
        messages = [Message.of(roles[at % 3], text) for at, text in enumerate(texts)]
        with SessionStore.open(home=self.folder / "home", clock=FrozenClock(NOW)) as store:
            if self.transcript(user) is None:
                start = SessionStart(str(store.key("telegram", user)))
                store.adopt(start, (), session_id=user, created=NOW)
            store.append_all(user, messages)
        self.in_step = False

    @rule(user=USERS, keep=st.floats(0, 1))
    def shorten_a_transcript(self, user, keep):
        if (path := self.transcript(user)) is not None:
            raw = path.read_bytes()
            path.write_bytes(raw[: int(len(raw) * keep)])
            self.in_step = False

    @rule(user=USERS)
    def edit_a_transcript(self, user):
        if (path := self.transcript(user)) is not None:
            path.write_bytes(path.read_bytes().replace(b"parrot", b"carrot", 1))
            self.in_step = False

    @rule(user=USERS)
    def delete_a_transcript(self, user):
        if (path := self.transcript(user)) is not None:
            path.unlink()
            self.in_step = False

    @rule(name=NAMES, body=BODIES)
    def write(self, name, body):
        (self.workspace / name).write_text(body, encoding="utf-8")
        self.in_step = False

    @rule(name=NAMES, body=BODIES)
    def append(self, name, body):
        with (self.workspace / name).open("a", encoding="utf-8") as file:
            file.write("\n" + body)
        self.in_step = False

    @rule(old=NAMES, new=NAMES)
    def rename(self, old, new):
        if (self.workspace / old).exists():
            (self.workspace / old).rename(self.workspace / new)
        self.in_step = False

    @rule(name=NAMES)
    def delete(self, name):
        (self.workspace / name).unlink(missing_ok=True)
        self.in_step = False

    @rule()
    def break_the_embedder(self):
        self.embedder.broken = True

    @rule()
    def restore_the_embedder(self):
        self.embedder.broken = False
        self.in_step = False

    @rule()
    def reopen(self):
        self.memory.close()
        self.memory = self.open()

    @rule(query=st.sampled_from(["parrot", "zeppelin", "大学", "กุ้ง"]))
    def search(self, query):
        for hit in self.memory.search(query).hits:
            said = self.memory.read(hit.path, start=hit.start_line, lines=hit.end_line - hit.start_line + 1).text
            # Between two messages of a hit there may be the answer of a tool, which is shown only as context.
            assert all(line in said for line in hit.snippet.strip("…").strip().split("\n"))

    @rule(force=st.booleans())
    def sync(self, force):
        self.memory.sync(force=force)
        self.in_step = not self.embedder.broken

    @rule()
    @precondition(lambda self: not self.embedder.broken)
    def kill_in_the_middle_of_a_rebuild(self):
        with self.memory.index_service.inspecting() as (index, _):
            index.begin_generation()
        self.memory.close()
        self.memory = self.open()
        self.in_step = False

    @invariant()
    def the_tables_agree_with_each_other(self):
        with self.memory.index_service.inspecting() as (index, _):
            assert find_damage(index) == []

    @invariant()
    def it_equals_a_fresh_rebuild_once_synced(self):
        if not self.in_step:
            return
        path = str(self.folder / "fresh.sqlite")
        elsewhere = {"memory_search.store.path": path}
        fresh = Memory.open(self.workspace, home=self.folder / "home", embedder=FakeEmbedder(), settings=elsewhere)
        with fresh:
            fresh.sync(force=True)
            assert dump_index(self.memory) == dump_index(fresh)

    def teardown(self):
        self.memory.close()
        shutil.rmtree(self.folder)


TestIndex = Index.TestCase
TestIndex.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
