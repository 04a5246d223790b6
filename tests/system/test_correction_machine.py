"""After any sequence of writes, edits by hand, undos, forgets, imports, exports, restores, kills and syncs: notes are
what the history says, an undo gives the bytes before, and what was forgotten is nowhere.

`KEPT_MACHINE_EXAMPLES=300` looks deeper than the ordinary run, with other sequences each time.
"""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kept import Memory
from kept.agent.tools.toolbox import Toolbox
from kept.cli.archive.export import export_archive
from kept.config import load_config
from kept.errors import CitationMismatch, NoteConflict, NoteNotFound
from kept.gateway.app import open_sessions
from kept.notes.history.check import check_history
from kept.notes.history.note_history import NoteHistory
from kept.notes.workspace import Workspace
from kept.sessions.entries import Message
from kept.sessions.importers.import_run import import_sessions
from kept.testing import FakeEmbedder
from tests.support.archives import restore
from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, lines
from tests.support.histories import versions_of
from tests.support.killing import dying_at, is_killed
from tests.support.planted_words import places_of

NAMES = st.sampled_from(["MEMORY.md", "memory/a.md", "memory/b.md", "memory/x/c.md"])
pytestmark = [pytest.mark.kills, pytest.mark.slow]

COMMON = ["- one", "- two", "# Heading", "", "A plain sentence that several notes have.", "long " * 500]
LINES = st.lists(st.sampled_from(COMMON), max_size=4)
STEPS = st.sampled_from(["fsync", "write", "replace", "unlink", "close", "pwrite"])
COUNTS = st.integers(1, 12)
SHAPES = st.sampled_from(
    ["- {} is a word\n", "\nA paragraph about {},\nover two lines.\n", "\n## About {}\n\nbelow\n", "{}\n" + "w " * 2500]
)
SESSION = "0123456789abcdef"


class Correction(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kept-machine-"))
        self.workspace, self.home = self.folder / "workspace", self.folder / "home"
        (self.workspace / "memory" / "x").mkdir(parents=True)
        self.is_synced = False
        self.words: list[str] = []
        """Words that were planted and are not forgotten."""
        self.forgotten: dict[str, str] = {}
        """Words that were forgotten, each with a text that an import must not bring back."""
        self.count = 0
        self.archives: list[Path] = []
        """Archives outside of the home that were made before the last forget."""
        self.memory = self.open()

    def open(self) -> Memory:
        """Open the memory as a command does, which finishes an interrupted forget."""
        memory = Memory.open(self.workspace, home=self.home, embedder=FakeEmbedder())
        memory.forgetting.finish()
        return memory

    def reopen(self) -> None:
        self.memory.close()
        self.memory = self.open()

    @property
    def loaded(self):
        return load_config(workspace=str(self.workspace), home=str(self.home), trust_workspace=True)

    def number(self) -> int:
        self.count += 1
        return self.count

    def new_word(self) -> str:
        word = (
            f"{'zörk' if self.count % 3 == 0 else 'qwark'}{''.join('abcdefghij'[int(n)] for n in str(self.number()))}x"
        )
        self.words.append(word)
        return word

    # writes

    @rule(name=NAMES, shape=SHAPES)
    def add(self, name, shape):
        self.memory.add(shape.format(self.new_word()), to=name)

    @rule(name=NAMES, text=st.sampled_from(COMMON[:3]))
    def add_what_others_have(self, name, text):
        self.memory.add(text, to=name, again=True)

    @rule(shape=SHAPES)
    def write_as_an_agent(self, shape):
        with open_sessions(self.loaded) as sessions:
            arguments = {"text": shape.format(self.new_word()), "to": "memory/a.md"}
            assert not Toolbox(self.memory, sessions).run("memory_write", arguments, session=SESSION).is_error

    @rule(shape=SHAPES)
    def propose(self, shape):
        """A file of the person is never written by a tool: it becomes a proposal."""
        assert self.memory.add(shape.format(self.new_word()), to="SOUL.md", by_tool=True).is_proposed

    @rule(name=NAMES)
    def replace_a_fact(self, name):
        texts = self.notes().get(name, b"").decode().split("\n")
        for number, text in enumerate(texts, 1):
            if text.startswith("- ") and "~~" not in text:
                try:
                    self.memory.add(f"{self.new_word()} is it now", replaces=f"{name}#L{number}")
                except CitationMismatch:
                    pass
                return

    @rule(name=NAMES, shape=SHAPES)
    def append_by_hand(self, name, shape):
        with open(self.workspace / name, "a") as file:
            file.write(shape.format(self.new_word()))
        self.is_synced = False

    @rule(name=NAMES, texts=LINES)
    def rewrite_by_hand(self, name, texts):
        self.rewrite(name, texts)

    @rule()
    def write_a_note_with_a_name(self):
        write_file(self.workspace / "memory" / f"{self.new_word()}.md", f"Its name says it all, {self.number()}.\n")
        self.is_synced = False

    @rule()
    def say(self):
        with open_sessions(self.loaded) as sessions:
            record = sessions.get_or_create("http", "ada")
            sessions.append(record.id, Message.of("user", f"Remember {self.new_word()}, please."))

    # taking back

    @rule()
    def undo_the_last_change(self):
        self.sync()
        change = next(iter(self.memory.history.changes()), None)
        if change is None or change.is_undone:
            return
        before = self.memory.history.read_version(change.before)
        try:
            self.memory.history.undo(change.id)
        except NoteConflict:
            assert change.is_forgotten
        else:
            assert self.notes().get(change.was or change.path) == before

    @rule(number=st.integers(0, 8))
    def undo_an_earlier_change(self, number):
        changes = [change for change in self.memory.history.changes() if not change.is_undone]
        if number < len(changes):
            self.undo(changes[number].id)

    @rule()
    def undo_a_session(self):
        self.undo(session=SESSION)

    def undo(self, *changes, **options):
        before = self.notes()
        try:
            self.memory.history.undo(*changes, **options)
        except NoteConflict:
            assert self.notes() == before

    # forgetting

    @rule(data=st.data(), another=st.booleans())
    def forget_a_word(self, data, another):
        if self.words:
            word = data.draw(st.sampled_from(self.words[-4:]))
            self.forget(word, another=another)

    @rule(data=st.data())
    def forget_a_word_and_find_no_proof_of_damage(self, data):
        """What did not have the word is unchanged: notes, versions, and the hashes of both."""
        self.sync()
        if not self.words:
            return
        word = data.draw(st.sampled_from(self.words[-4:]))
        versions = self.versions(self.memory.history)
        of_name = {change.after for change in self.memory.history.iter_newest() if word in change.path}
        others = {
            digest: text for digest, text in versions.items() if word.encode() not in text and digest not in of_name
        }
        notes = {path: text for path, text in self.notes().items() if word.encode() not in text and word not in path}
        self.forget(word)
        assert others.items() <= self.versions(self.memory.history).items()
        assert notes.items() <= self.notes().items()

    @rule()
    def forget_a_cited_line(self):
        """A line without words of its own: only that note and its own versions lose it."""
        self.sync()
        for path, content in sorted(self.notes().items()):
            texts = content.decode().split("\n")
            for number, text in enumerate(texts, 1):
                if text in ("- one", "- two"):
                    names = {path}
                    for change in self.memory.history.iter_newest():
                        names |= {change.was} if change.was and change.path in names else set()
                    versions = {
                        change.after
                        for change in self.memory.history.iter_newest()
                        if change.path not in names and change.after
                    }
                    kept = {digest: self.memory.history.read_version(digest) for digest in versions}
                    receipt = self.memory.forgetting.apply(self.memory.forgetting.plan(f"{path}#L{number}"))
                    assert receipt.is_finished
                    del texts[number - 1]
                    left = self.notes()[path].decode().split("\n")
                    assert list(filter(None, left)) == list(filter(None, texts))
                    assert kept.items() <= self.versions(self.memory.history).items()
                    self.is_synced = False
                    return

    @rule(data=st.data())
    def forget_a_line_with_a_word_by_its_citation(self, data):
        word = self.new_word()
        text = f"The code of the {word} is only in this line"
        self.memory.add(f"- {text}", to="memory/a.md")
        self.memory.sync()
        self.words.remove(word)
        number = next(at for at, text in enumerate(self.notes()["memory/a.md"].decode().split("\n"), 1) if word in text)
        receipt = self.memory.forgetting.apply(self.memory.forgetting.plan(f"memory/a.md#L{number}"))
        assert receipt.left == ()
        self.forgotten[word] = text
        self.is_synced = False
        self.check_forgotten([word])

    def forget(self, word, *, another=False):
        plan = self.memory.forgetting.plan(word)
        if not plan.places:  # the word was only in a write that was killed
            assert self.places(word) == []
            self.words.remove(word)
            return
        if another:  # another process, while this one has the memory open
            with self.open() as other:
                receipt = other.forgetting.apply(plan)
        else:
            receipt = self.memory.forgetting.apply(plan)
        assert receipt.is_finished
        assert receipt.left == ()
        self.is_synced = False
        self.words.remove(word)
        self.forgotten[word] = f"It is {word}!"
        self.check_forgotten([word])

    # coming back

    @rule(data=st.data())
    def import_what_was_forgotten(self, data):
        old = data.draw(st.sampled_from(list(self.forgotten.values()))) if self.forgotten else "nothing"
        number = self.number()
        records = (cc_user(f"a{number}", None, old), cc_user(f"b{number}", f"a{number}", self.new_word()))
        source = write_file(self.folder / "claude" / f"s{number}.jsonl", lines(*records))
        with open_sessions(self.loaded) as sessions:
            import_sessions(sessions, "claude-code", source)

    @rule(name=st.sampled_from(["x.tar", "x.tar.gz"]))
    def export(self, name):
        target = self.folder / "backups" / f"{self.number()}-{name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        export_archive(self.loaded, str(target))
        self.check_archive(target)
        self.archives.append(target)

    @rule(data=st.data())
    def restore(self, data):
        if not self.archives:
            return
        archive = data.draw(st.sampled_from(self.archives[-3:]))
        self.memory.close()
        restore(archive, self.home, workspace=str(self.workspace))
        self.memory = self.open()
        self.is_synced = False

    # kills

    @rule(name=NAMES, shape=SHAPES, step=STEPS, count=COUNTS)
    def kill_a_write(self, name, shape, step, count):
        text = shape.format(self.new_word())
        self.kill(lambda memory: memory.add(text, to=name), step, count)

    @rule(step=STEPS, count=COUNTS)
    def kill_an_undo(self, step, count):
        self.kill(lambda memory: memory.history.undo(), step, count)

    @rule(name=NAMES, texts=LINES, step=STEPS, count=COUNTS)
    def kill_a_sync(self, name, texts, step, count):
        self.rewrite_by_hand(name, texts)
        self.kill(lambda memory: memory.sync(), step, count)

    @rule(data=st.data(), step=STEPS, count=st.integers(1, 60))
    def kill_a_forget(self, data, step, count):
        if not self.words:
            return
        word = data.draw(st.sampled_from(self.words[-4:]))
        plan = self.memory.forgetting.plan(word)
        if not plan.places:
            return
        is_done = self.kill(lambda memory: memory.forgetting.apply(plan), step, count)
        if is_done:
            self.words.remove(word)
            self.forgotten[word] = f"It is {word}!"
            self.check_forgotten([word])

    @rule(step=STEPS, count=COUNTS)
    def kill_an_export(self, step, count):
        target = self.folder / "backups" / f"{self.number()}.tar"
        target.parent.mkdir(parents=True, exist_ok=True)
        self.kill(lambda memory: export_archive(self.loaded, str(target)), step, count)

    def kill(self, action, step, count) -> bool:
        """Run an action in a process that is killed when it makes a system call for the ``count``-th time. Return
        whether a forget had begun or was done."""
        receipts = self.home / "agents" / "main" / "forget-receipts.jsonl"
        size = receipts.stat().st_size if receipts.exists() else 0
        self.memory.close()

        def act() -> None:
            memory = self.open()
            setattr(os, step, dying_at(count)(getattr(os, step)))
            action(memory)

        is_killed(act)
        self.memory = self.open()
        self.is_synced = False
        return receipts.exists() and receipts.stat().st_size > size

    def notes(self) -> dict[str, bytes]:
        paths = [self.workspace / "MEMORY.md", *(self.workspace / "memory").rglob("*.md")]
        return {str(path.relative_to(self.workspace)): path.read_bytes() for path in paths if path.exists()}

    def rewrite(self, name: str, lines: list[str]) -> None:
        (self.workspace / name).write_text("\n".join(lines))
        self.is_synced = False

    @rule(name=NAMES)
    def remove_by_hand(self, name):
        if (self.workspace / name).exists():
            (self.workspace / name).unlink()
            self.is_synced = False

    @rule(name=NAMES, other=NAMES)
    def rename_by_hand(self, name, other):
        if (self.workspace / name).exists() and not (self.workspace / other).exists():
            (self.workspace / name).rename(self.workspace / other)
            self.is_synced = False

    @rule()
    def sync(self):
        report = self.memory.sync()
        assert not report.problems
        self.is_synced = True

    @invariant()
    def notes_are_what_the_history_says(self):
        if not self.is_synced:
            return
        states: dict[str, str | None] = {}
        for change in reversed(list(self.memory.history.iter_newest())):
            states |= {change.was: None} if change.was else {}
            states[change.path] = change.after
        present = {path: hashlib.sha256(content).hexdigest() for path, content in self.notes().items()}
        assert {path: digest for path, digest in states.items() if digest} == present

    def teardown(self):
        self.sync()
        self.notes_are_what_the_history_says()
        self.check_at_the_end()
        assert check_history(self.memory.history).lost == 0
        self.memory.close()
        shutil.rmtree(self.folder)

    # checks

    def places(self, word: str) -> list[str]:
        return places_of(word, self.home, self.workspace)

    def versions(self, history: NoteHistory) -> dict[str, bytes]:
        return {hashlib.sha256(text).hexdigest(): text for _, text in versions_of(Path(history.workspace.root))}

    def check_forgotten(self, words: list[str]) -> None:
        """Search for words in every way there is."""
        with self.open() as memory:  # as a new process would
            versions = b"\0".join(self.versions(memory.history).values()).decode()
            shown = "".join(memory.history.diff(change) for change in memory.history.changes())
            for word in words:
                assert all(word not in hit.snippet + hit.path for hit in memory.search(word)), word
                assert word not in versions
                assert word not in shown
                with pytest.raises(NoteNotFound):
                    memory.read(f"memory/{word}.md")

    def check_archive(self, path: Path) -> None:
        """What was forgotten is in no member of an archive, nor in a version of its history."""
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(path) as tar:
                tar.extractall(folder, filter="data")
            unpacked = Path(folder)
            notes = Workspace.at(str(unpacked / "notes" / "main"))
            history = NoteHistory(self.memory.config, notes, self.memory.clock)
            versions = b"\0".join(self.versions(history).values()).decode()
            names = "\n".join(map(str, unpacked.rglob("*")))
            for word in self.forgotten:
                assert places_of(word, unpacked) == []
                assert word not in versions + names

    @invariant()
    def no_file_has_what_was_forgotten(self):
        names = "\n".join(str(path) for folder in (self.home, self.workspace) for path in folder.rglob("*"))
        for word in self.forgotten:
            assert self.places(word) == [], word
            assert word not in names

    def check_at_the_end(self) -> None:
        self.no_file_has_what_was_forgotten()
        self.check_forgotten(list(self.forgotten))
        receipts = self.home / "agents" / "main" / "forget-receipts.jsonl"
        for line in receipts.read_text().splitlines() if receipts.exists() else ():
            assert json.loads(line)["finished"]


EXAMPLES = int(os.environ.get("KEPT_MACHINE_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 20,
    derandomize=not EXAMPLES,
    stateful_step_count=20,
    phases=[Phase.generate],  # a shorter example would take minutes to find
    report_multiple_bugs=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCorrection = Correction.TestCase
TestCorrection.settings = SETTINGS
