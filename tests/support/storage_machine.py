"""State machine of a storage: any sequence of commits, edits by others and kills.

The storage in memory is the model: a folder has to have the same after every step.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kept.errors import DocumentNotFound, StorageConflict, UsageError
from kept.storage.contract import Append, Blank, Erase, LogPosition, Move, Remove, Rewrite, Write, version_of
from kept.storage.files.file_storage import FileStorage
from kept.testing import MemoryStorage
from tests.support.killing import run_until

PATHS = st.sampled_from(["a.md", "b.md", "memory/c.md", "memory/deep/d.md"])
LOGS = st.sampled_from(["s.jsonl", "memory/t.jsonl"])
DATA = st.binary(max_size=40)
LINES = st.lists(st.integers(0, 10**9).map(lambda number: b'{"n": %d}' % number), max_size=3)
VERSIONS = st.sampled_from([None, None, "", "current", version_of(b"another")])
NUMBERS = st.integers(0, 5).map(LogPosition)
"""Numbers of lines. They become positions before a commit."""
CHANGES = st.one_of(
    st.builds(Write, PATHS, DATA, VERSIONS),
    st.builds(Remove, PATHS, VERSIONS),
    st.builds(Erase, PATHS),
    st.builds(Move, PATHS, PATHS, VERSIONS),
    st.builds(Append, LOGS, LINES),
    st.builds(Blank, LOGS, NUMBERS, st.sampled_from([b"", b'""'])),
    st.builds(Rewrite, LOGS, LINES),
)
SETTINGS = settings(
    max_examples=60,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
REFUSALS = (StorageConflict, UsageError, DocumentNotFound)


class StorageMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.files, self.memory = FileStorage(str(self.folder)), MemoryStorage()
        self.cursor, self.seen = None, {}

    def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=4), step=st.one_of(st.none(), st.integers(0, 25)))
    def commit(self, changes, step):
        before = read(self.memory)
        real = [make_real(change, self.memory) for change in changes]
        try:
            ends = self.memory.commit(real)
        except REFUSALS:
            with pytest.raises(REFUSALS):
                self.files.commit(real)
            return
        if step is None or run_until(step, lambda: self.files.commit(real)):
            assert step is not None or self.files.commit(real) == ends
        elif read(self.files) != read(self.memory):
            assert read(self.files) == before
            self.files.commit(real)

    @rule(path=PATHS, data=DATA)
    def edit_by_another_program(self, path, data):
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        self.memory.commit([Write(path, data)])

    @rule()
    def follow_by_cursor(self):
        changed, self.cursor = self.files.documents.changes(self.cursor)
        for change in changed:
            if change.info is None:
                del self.seen[change.path]
            else:
                self.seen[change.path] = self.files.documents.read(change.path).data
        assert self.seen == read(self.memory)[0]

    @invariant()
    def both_have_the_same(self):
        assert read(self.files) == read(self.memory)


def make_real(change, storage):
    """Return a change with the current version instead of the word, and a position instead of a number."""
    match change:
        case Blank(log, number):
            found = list(storage.logs.read(log))
            place = found[min(number.offset, len(found) - 1)].start if found else LogPosition(0)
            return Blank(log, place, change.line)
        case Write(path=path, expected="current") | Remove(path=path, expected="current"):
            version = next((storage.documents.read(info.path).version for info in storage.documents.list(path)), "")
            return Write(path, change.data, version) if isinstance(change, Write) else Remove(path, version)
    return change


def read(storage):
    documents = {info.path: storage.documents.read(info.path).data for info in storage.documents.list()}
    logs = {info.name: list(storage.logs.read(info.name)) for info in storage.logs.list()}
    return documents, {name: lines for name, lines in logs.items() if lines}
