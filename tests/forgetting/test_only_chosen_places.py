"""Only the places that were chosen change. Every other byte is the same afterwards."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept import Memory, Message, SessionStore
from kept.errors import UsageError
from tests.support.files import write_file
from tests.support.workspaces import open_memory

WORD = "walrus"
LINES = (
    f"- The {WORD} is in the shed.",
    f"- The {WORD} is in the shed.",
    f"- Ask {WORD.upper()} about the key.",
    "- Boats leave at seven.",
    "- Wrote docs for the ledger.",
    "",
    "## Later",
    f"A paragraph about the {WORD},",
    "over two lines.",
)
DERIVED = ("index.sqlite", "embeddings.sqlite", "sessions.sqlite", "forget-receipts.jsonl", "forgotten-hashes.jsonl")


def read_all(*folders: Path) -> dict[str, bytes]:
    """Return all files, except for derived ones, locks, and the history, whose own test is below."""
    return {
        str(path): path.read_bytes()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.startswith(DERIVED)
        and path.suffix != ".lock"
        and ".kept/history" not in str(path)
        and ".kept/storage" not in str(path)
    }


def fill(memory: Memory, notes: list[list[str]], said: list[str]) -> None:
    """Write notes and conversations, and a record of each other kind with the word in a field of its own."""
    root, folder = Path(memory.workspace.root), Path(memory.config.paths.folder)
    for number, note in enumerate(notes):
        write_file(root / f"memory/n{number}.md", "\n".join(note) + "\n")
    with SessionStore(memory.config) as sessions:
        for number, text in enumerate(said):
            record = sessions.get_or_create("http", f"user{number % 2}")
            sessions.append(record.id, Message.of("user", text))
    memory.add(f"- Praise the {WORD}.", to="SOUL.md", by_tool=True)
    write_file(folder / "ledger.jsonl", json.dumps({"provider": WORD, "tokens": 3}) + "\n")
    write_file(Path(memory.config.home) / "tokens.json", json.dumps({"tokens": [{"name": WORD, "scope": WORD}]}))
    write_file(Path(memory.config.home) / "exports/talk.md", f"They said {WORD}.\n")
    memory.sync()


texts = st.lists(st.sampled_from(LINES), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    notes=st.lists(texts, min_size=1, max_size=3),
    said=st.lists(st.sampled_from(LINES[2:5]), max_size=4),
    choice=st.data(),
)
def test_every_byte_outside_of_the_chosen_places_is_the_same_afterwards(notes, said, choice):
    with tempfile.TemporaryDirectory() as folder, open_memory(Path(folder)) as memory:
        fill(memory, notes, said)
        plan = memory.forgetting.plan(WORD)
        numbers = choice.draw(st.lists(st.integers(1, len(plan.options)), min_size=1, unique=True))
        before = read_all(Path(memory.config.home), Path(memory.workspace.root))
        memory.forgetting.apply(plan.choose(",".join(map(str, numbers))))
        after = read_all(Path(memory.config.home), Path(memory.workspace.root))
        root, transcripts = Path(memory.workspace.root), Path(memory.config.paths.sessions)
        for place in (plan.options[number - 1] for number in numbers):
            if place.kind == "proposal":
                before.pop(str(root / place.path))
            elif place.kind == "note":
                note = str(root / place.path)
                lines = before[note].decode().split("\n")
                span = slice(place.start_line - 1, place.start_line - 1 + place.lines)
                lines[span] = ["\0"] * place.lines
                before[note] = "\n".join(lines).encode()
            elif place.kind == "conversation":
                path = str(transcripts / Path(place.path).name)
                lines = before[path].splitlines()
                new = after[path].splitlines()[place.start_line - 1]
                assert WORD.encode() not in new.lower()
                lines[place.start_line - 1] = new
                before[path] = b"\n".join(lines) + b"\n"
        for path, data in before.items():
            if path.startswith(str(root / "memory")):  # blank lines beside a passage that is gone may go with it
                rest = [line for line in data.split(b"\n") if line.strip(b" \0")]
                assert [line for line in after[path].split(b"\n") if line.strip()] == rest, path
            elif path.endswith("ledger.jsonl"):  # it gets a line for what was embedded anew
                assert after[path].startswith(data)
            else:
                assert after[path] == data, path
        assert set(after) == set(before)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(note=texts.filter(lambda lines: any(WORD in line.lower() for line in lines)), choice=st.data())
def test_old_versions_of_other_notes_are_the_same_afterwards(note, choice):
    with tempfile.TemporaryDirectory() as folder, open_memory(Path(folder)) as memory:
        root = Path(memory.workspace.root)
        for name in ("a", "b"):
            write_file(root / f"memory/{name}.md", "\n".join(note) + "\n")
        memory.sync()
        memory.add("Another day.", to="memory/b.md")
        texts_before = [memory.history.diff(change) for change in memory.history.changes("memory/b.md")]
        places = memory.forgetting.plan(WORD)
        own = [number for number, place in enumerate(places.options, 1) if place.path == "memory/a.md"]
        numbers = choice.draw(st.lists(st.sampled_from(own), min_size=1, unique=True))
        memory.forgetting.apply(places.choose(",".join(map(str, numbers))))
        assert [memory.history.diff(change) for change in memory.history.changes("memory/b.md")] == texts_before


@pytest.fixture
def memory(tmp_path):
    with open_memory(tmp_path) as opened:
        yield opened


def test_words_that_are_nowhere_offer_the_line_of_the_best_hits_and_none_is_chosen(memory):
    root = Path(memory.workspace.root)
    write_file(
        root / "memory/home.md", "# Home\n\n- Wifi password of the new router is plum.\n- The boiler is Vaillant.\n"
    )
    memory.sync()
    plan = memory.forgetting.plan("the wifi password")
    assert plan.places == ()
    assert plan.candidates[0].text == "- Wifi password of the new router is plum."
    memory.forgetting.apply(plan.choose("1"))
    assert (root / "memory/home.md").read_text() == "# Home\n\n- The boiler is Vaillant.\n"


@pytest.mark.parametrize("answer", ["", "0", "9", "1,x", "-1", "1;2"])
def test_an_answer_that_names_no_place_is_refused(memory, answer):
    write_file(Path(memory.workspace.root) / "memory/a.md", "- walrus\n")
    with pytest.raises(UsageError, match="names no places"):
        memory.forgetting.plan(WORD).choose(answer)


def test_a_crash_between_a_cut_and_its_note_in_the_journal_takes_no_second_copy(memory):
    note = write_file(Path(memory.workspace.root) / "memory/a.md", "- same\n- other\n- same\n")

    class Killed(Exception):
        pass

    journal = Path(memory.config.paths.folder) / "forgetting.json"
    journals: list[str] = []

    def kill(step: str) -> None:
        if step == "notes":
            journals.append(journal.read_text())
        if step == "conversations":
            raise Killed

    with pytest.raises(Killed):
        memory.forgetting.apply(memory.forgetting.plan("memory/a.md#L1"), on_step=kill)
    write_file(journal, journals[0])
    assert note.read_text() == "- other\n- same\n"
    memory.forgetting.finish()
    assert note.read_text() == "- other\n- same\n"
