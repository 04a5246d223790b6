"""What is forgotten is nowhere afterwards, and everything else is as it was."""

import json
import threading
from pathlib import Path

import pytest

from kept import Memory
from kept.base.file_lock import locked
from kept.errors import EmptyQuery, ForgetFailed, ForgetTooMuch, NoteNotFound, PathRefused, SessionNotFound, UsageError
from kept.index.sources import IndexLimits
from kept.notes.line_edit import remove_lines
from kept.sessions.entries import CompactionEntry, Message, ToolCall
from kept.sessions.importers.import_run import import_sessions
from kept.sessions.store import SessionStore
from kept.sessions.transcript import hash_lines
from kept.storage.open import INBOX_LEASE, open_agent
from kept.testing import FakeEmbedder
from tests.support.files import write_file
from tests.support.foreign_transcripts import cc_user, lines
from tests.support.killing import die, is_killed
from tests.support.planted_words import PLANTS, PlantedHome, start_planting
from tests.support.session_strategies import path_of
from tests.support.workspaces import open_memory, write_note


@pytest.fixture
def planted(tmp_path):
    memory = open_memory(tmp_path)
    home = start_planting(memory)
    yield home
    home.sessions.close()
    memory.close()


def word_of(number: int) -> str:
    """Return a word that is in no other text. Some are not ASCII."""
    return f"{'zörk' if number % 3 == 0 else 'qwark'}{'abcdefghij'[number % 10]}{'klmnopqrst'[number // 10]}x"


def test_a_word_in_any_kind_of_place_is_nowhere_afterwards(planted):
    """In the same home one after the other, so that each forget meets what the earlier ones have left."""
    words = {kind: word_of(number) for number, kind in enumerate(PLANTS)}
    for kind, plant in PLANTS.items():
        plant(planted, words[kind])
    planted.memory.sync()
    count = len(planted.sessions.load(planted.session_id))
    for kind, word in words.items():
        assert planted.left(word), kind
        plan = planted.memory.forgetting.plan(word)
        assert plan.places, kind
        receipt = planted.memory.forgetting.apply(plan)
        assert receipt.left == (), kind
        assert receipt.is_finished, kind
        assert planted.left(word) == [], kind
        assert all(word not in hit.snippet for hit in planted.memory.search(word)), kind
    assert len(planted.sessions.load(planted.session_id)) == count, "every line keeps its place"
    harbour = (planted.workspace / "memory" / "harbour.md").read_text()
    assert harbour == "# Harbour\n\n- The lighthouse is at Skerry.\n- Boats leave at seven.\n"
    assert planted.memory.search("when do boats leave")[0].path == "memory/harbour.md"
    print(f"{len(words)} forgets, each searched byte by byte: 0 left")


def test_a_line_of_a_transcript_keeps_its_id_its_place_and_its_length(planted):
    planted.say("My code is xylograph-7.")
    planted.say("Noted.", role="assistant")
    (record,) = planted.sessions.recent()
    before = path_of(planted.sessions, record).read_bytes()
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("xylograph-7"))
    after = path_of(planted.sessions, record).read_bytes()
    assert len(after) == len(before)
    old, new = ([json.loads(line) for line in data.splitlines()] for data in (before, after))
    assert [line["id"] for line in old] == [line["id"] for line in new]
    assert [line["parentId"] for line in old] == [line["parentId"] for line in new]
    assert [number for number, line in enumerate(old) if line != new[number]] == [3]
    assert new[3]["message"] == {"role": "user", "content": ""}
    assert new[3]["forgotten"] is True
    assert planted.sessions.append(planted.session_id, Message.of("user", "More.")).parent_id == new[-1]["id"]


@pytest.mark.parametrize("word", ["text", "message", "content", "metadata", "arguments", "user", "name"])
def test_a_word_that_names_a_field_of_a_transcript_takes_only_what_says_it(planted, word):
    planted.say("One.", ToolCall("c1", "search", {"q": "two"}), metadata={"context": "three"})
    planted.say(f"The {word} is four.", sender="Ada")
    before = planted.sessions.load(planted.session_id).messages
    plan = planted.memory.forgetting.plan(word)
    assert [place.kind for place in plan.places] == ["conversation"]
    planted.memory.forgetting.apply(plan)
    after = planted.sessions.load(planted.session_id).messages
    assert list(after[:-1]) == list(before[:-1])
    assert (after[-1].text, after[-1].sender) == ("", "Ada")


def test_the_receipt_of_a_compaction_is_still_right_for_the_lines_that_it_covers(planted):
    planted.say("My code is xylograph-7.")
    (record,) = planted.sessions.recent()
    lines_before = list(planted.sessions.transcript(record).iter_lines())
    digest = hash_lines(lines_before, [(2, 4)])
    receipt = {"path": record.citation, "lines": [[2, 4]], "sha256": digest, "searchable": True}
    planted.sessions.append(planted.session_id, CompactionEntry("They talked.", receipt=receipt))
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("xylograph-7"))
    entry = planted.sessions.load(planted.session_id).entries[-1]
    renewed = entry.body.receipt["sha256"]
    assert renewed == hash_lines(planted.sessions.transcript(record).iter_lines(), [(2, 4)]) != digest


def test_words_are_whole_words_in_any_case_over_line_breaks(planted):
    planted.note("words.md", "planning with Joann\n\nANN was here\n\nblue\n  Ann  \n")
    plan = planted.memory.forgetting.plan("ann")
    assert [place.text for place in plan.places] == ["ANN was here", "blue\n  Ann  "]
    receipt = planted.memory.forgetting.apply(plan)
    assert receipt.left == (), "the letters inside of other words are no trace"
    assert (planted.workspace / "memory" / "words.md").read_text() == "planning with Joann\n\n"
    planted.note("over.md", "- the red\n  house here\n")
    assert len(planted.memory.forgetting.plan("red house").places) == 1


def test_a_citation_goes_with_what_was_made_of_it_and_its_copies_only_if_they_are_chosen(planted):
    planted.say("The vault opens with the word quokka.")
    (record,) = planted.sessions.recent()
    cited = f"{record.citation}#L4"
    planted.note(
        "facts.md", f"- Ada: the vault has a code (from {cited})\n- Boats are blue (from {record.citation}#L2)\n"
    )
    planted.note("copy.md", "> The vault opens with the word quokka.\n\nother\n")
    plan = planted.memory.forgetting.plan(cited)
    assert [(place.kind, place.citation) for place in plan.places] == [
        ("conversation", cited),
        ("note", "memory/facts.md#L1"),
    ]
    assert [place.citation for place in plan.candidates] == ["memory/copy.md#L1"]
    receipt = planted.memory.forgetting.apply(plan.choose("1,2,3"))
    assert receipt.request == "citation"
    assert planted.left("quokka") == []
    assert (planted.workspace / "memory" / "facts.md").read_text().startswith("- Boats are blue")


def test_a_whole_conversation_goes_with_its_facts_and_no_import_brings_it_back(planted, tmp_path):
    transcript = lines(
        cc_user("a", None, "The password of the barn is hedgehog."), cc_user("b", "a", "Good night then.")
    )
    source = write_file(tmp_path / "claude" / "s.jsonl", transcript)
    (outcome,) = import_sessions(planted.sessions, "claude-code", source).sessions
    record = planted.sessions.get(outcome.id)
    planted.note("facts.md", f"- the barn has a password (from {record.citation}#L2-L3)\n- another\n")
    plan = planted.memory.forgetting.plan(session=outcome.id)
    assert [place.kind for place in plan.places] == ["session", "note"]
    receipt = planted.memory.forgetting.apply(plan)
    assert "the original files of imported conversations" in receipt.unreachable
    assert planted.left("hedgehog") == planted.left("the barn has") == []
    (outcome,) = import_sessions(planted.sessions, "claude-code", source).sessions
    assert outcome.outcome == "deleted"


def test_an_import_does_not_bring_a_word_back(planted, tmp_path):
    planted.say("It is hedgehog.")
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    transcript = lines(cc_user("a", None, "The password is Hedgehog!"), cc_user("b", "a", "Good night then."))
    source = write_file(tmp_path / "claude" / "s.jsonl", transcript)
    (outcome,) = import_sessions(planted.sessions, "claude-code", source).sessions
    assert planted.left("hedgehog") == []
    assert [message.text for message in planted.sessions.load(outcome.id).messages] == ["", "Good night then."]
    (outcome,) = import_sessions(planted.sessions, "claude-code", source).sessions
    assert outcome.outcome == "unchanged"


def test_a_person_goes_with_what_they_said(planted):
    planted.say("I like herons.", sender="Mallory Quince")
    planted.say("So does Mallory  Quince, I hear.", sender="Bob")
    planted.note("people.md", "- Mallory Quince, Skerry\n- Bob, mainland\n")
    planted.memory.forgetting.apply(planted.memory.forgetting.plan(person="mallory quince"))
    texts = [message.text for message in planted.sessions.load(planted.session_id).messages]
    assert texts[2:] == ["", ""]
    assert planted.left("mallory") == planted.left("herons") == []
    assert planted.left("mainland")
    with pytest.raises(ForgetFailed, match="nothing to forget"):
        planted.memory.forgetting.apply(planted.memory.forgetting.plan("mallory quince"))


def test_everything_before_a_day_goes_and_what_is_later_stays(planted):
    for day in ("2026-01-05", "2026-01-06"):
        planted.note(f"{day}.md", f"# {day}\n\nIt was {day[-2:]}th, quiet.\n")
    plan = planted.memory.forgetting.plan(before="2026-01-06")
    assert [place.citation for place in plan.places] == ["memory/2026-01-05.md"]
    planted.memory.forgetting.apply(plan)
    assert not (planted.workspace / "memory" / "2026-01-05.md").exists()
    assert planted.left("05th") == []
    assert planted.left("06th")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"query": ""}, EmptyQuery),
        ({"query": " \n"}, EmptyQuery),
        ({}, UsageError),
        ({"query": "a", "person": "b"}, UsageError),
        ({"query": "e"}, ForgetTooMuch),
        ({"query": "..."}, ForgetTooMuch),
        ({"person": "x"}, ForgetTooMuch),
        ({"query": "thing"}, ForgetTooMuch),
        ({"session": "nobody"}, SessionNotFound),
        ({"before": "someday"}, UsageError),
        ({"query": "memory/none.md#L3"}, NoteNotFound),
        ({"query": "../../etc/passwd.md#L1"}, PathRefused),
        ({"query": "memory/harbour.md#L900"}, NoteNotFound),
    ],
)
def test_a_hostile_request_changes_nothing(planted, arguments, error):
    planted.note("many.md", "\n".join(f"- thing {number}" for number in range(120)))
    with pytest.raises(error):
        planted.memory.forgetting.plan(**arguments)
    assert not (planted.folder / "forgetting.json").exists()


STEPS = (
    *("journal", "hashes", "notes", "conversations", "inbox", "attachments"),
    *("catalogue", "index", "qmd", "leftovers", "search", "receipt", "end"),
)


def forget_and_die(tmp_path: Path, word: str, step: str) -> None:
    """Forget a word in a child that kills itself before a step."""

    def act() -> None:
        forgetting = open_memory(tmp_path).forgetting
        forgetting.apply(forgetting.plan(word), on_step=lambda name: die() if name == step else None)

    assert is_killed(act)


def test_a_forget_that_was_killed_at_any_step_is_finished_by_the_next_run(tmp_path):
    with open_memory(tmp_path) as memory:
        home = start_planting(memory)
    for number, step in enumerate(STEPS):
        word = f"glimmer{'abcdefghijklmnop'[number]}q"
        for kind in ("list item", "message", "inbox"):
            PLANTS[kind](home, word)
        with open_memory(tmp_path) as memory:
            memory.sync()
        forget_and_die(tmp_path, word, step)
        with open_memory(tmp_path) as memory:
            receipt = memory.forgetting.finish()
            if step == "journal":
                assert receipt is None, "nothing had happened"
                receipt = memory.forgetting.apply(memory.forgetting.plan(word))
            assert receipt.is_finished, step
            assert memory.forgetting.finish() is None
        assert home.left(word) == [], step
        assert not (home.folder / "forgetting.json").exists()
    home.sessions.close()


def test_a_journal_that_was_being_erased_is_removed(planted):
    journal = planted.folder / "forgetting.json"
    journal.write_bytes(bytes(300) + b'"words"')
    assert planted.memory.forgetting.finish() is None
    assert not journal.exists()


def test_lines_that_moved_since_a_crash_still_go(planted):
    plan = planted.memory.forgetting.plan("memory/harbour.md#L4")
    note = planted.workspace / "memory" / "harbour.md"
    note.write_text("new first line\n\n" + note.read_text())
    planted.memory.forgetting.apply(plan)
    assert "seven" not in note.read_text()


def test_a_passage_that_changed_since_it_was_shown_is_left_alone(planted):
    plan = planted.memory.forgetting.plan("memory/harbour.md#L4")
    note = planted.workspace / "memory" / "harbour.md"
    note.write_text(note.read_text().replace("seven", "eight"))
    receipt = planted.memory.forgetting.apply(plan)
    assert receipt.changed == ("memory/harbour.md#L4",)
    assert "eight" in note.read_text()


def test_a_session_that_another_thread_writes_to_loses_no_message(planted):
    planted.say("It is hedgehog.")
    others = SessionStore(planted.memory.config)

    def write() -> None:
        for number in range(60):
            others.append(planted.session_id, Message.of("user", f"message {number}"))

    writer = threading.Thread(target=write)
    writer.start()
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    writer.join()
    others.close()
    loaded = planted.sessions.load(planted.session_id)
    assert not loaded.damage
    texts = [message.text for message in loaded.messages]
    assert texts[3:] == [f"message {number}" for number in range(60)]
    assert planted.left("hedgehog") == []


def test_the_inbox_of_a_running_gateway_is_left_until_it_stops(planted):
    PLANTS["inbox"](planted, "hedgehog")
    planted.note("a.md", "- hedgehog\n")
    with open_agent(planted.memory.config).lease(INBOX_LEASE, wait_s=0.0):
        receipt = planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
        assert not receipt.is_finished
        assert "gateway" in receipt.unreachable[0]
        assert [Path(path).name for path in planted.left("hedgehog")] == ["forgetting.json", "inbox.jsonl"]
        again = planted.memory.forgetting.finish()
        assert not again.is_finished
    finished = planted.memory.forgetting.finish()
    assert finished.is_finished
    assert planted.left("hedgehog") == []


def test_an_index_that_another_process_writes_is_scrubbed_by_the_next_run(tmp_path):
    with open_memory(tmp_path, limits=IndexLimits(sync_wait_s=0.0)) as memory:
        home = start_planting(memory)
        home.note("a.md", "- hedgehog\n")
        memory.sync()
        with locked(f"{memory.index_service.path}.lock", wait_s=5, purpose="indexing"):
            receipt = memory.forgetting.apply(memory.forgetting.plan("hedgehog"))
        assert not receipt.is_finished
        finished = memory.forgetting.finish()
        assert finished.is_finished
        assert home.left("hedgehog") == []
        home.sessions.close()


def test_a_receipt_has_no_word_of_what_was_forgotten(planted):
    planted.note("hedgehog.md", "It lives here.\n")
    planted.note("a.md", "- the hedgehog\n")
    receipt = planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    assert ("note", "memory/(a name that was forgotten)") in receipt.places
    assert "hedgehog" not in (planted.folder / "forget-receipts.jsonl").read_text()
    assert len(receipt.sha256) == 64


def test_notes_in_extra_paths_are_named_and_stay(tmp_path):
    note = write_note(tmp_path / "vault", "lock.md", "The hedgehog is mine.\n")
    with open_memory(tmp_path, settings={"memory_search.extra_paths": [str(note.parent)]}) as memory:
        write_note(tmp_path / "workspace", "memory/a.md", "- hedgehog\n")
        plan = memory.forgetting.plan("hedgehog")
        assert plan.unreachable == (f"{note}#L1",)
        memory.forgetting.apply(plan)
        assert note.read_text() == "The hedgehog is mine.\n"


def test_a_tool_leaves_the_files_of_the_person_alone(planted: PlantedHome):
    write_file(planted.workspace / "SOUL.md", "You are hedgehog.\n")
    planted.note("a.md", "- hedgehog\n")
    plan = planted.memory.forgetting.plan("hedgehog", by_tool=True)
    assert plan.unreachable == ("SOUL.md#L1",)
    receipt = planted.memory.forgetting.apply(plan)
    assert [Path(file.path).name for file in receipt.left] == ["SOUL.md"]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_note_keeps_its_line_ends_and_everything_else_to_the_byte(codec):
    mark = b"\xfe\xff" if codec == "utf-16-be" else b""
    raw = mark + "# A\r\n\r\nfirst\r\n\r\nsecond\r\nline\r\n\r\nthird".encode(codec)
    kept = mark + "# A\r\n\r\nfirst\r\n\r\nthird".encode(codec)
    assert remove_lines(raw, {(5, 6): ""}, "n.md") == kept
    assert remove_lines(b"first\xff\n\nsecond\n", {(3, 3): ""}, "n.md") == b"first\xff\n\n"


def test_an_interrupted_forget_is_not_finished_in_another_workspace(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The dentist is on Monday.\n")
    other = write_note(tmp_path / "other", "memory/b.md", "The dentist is on Friday.\n")
    forget_and_die(tmp_path, "dentist", "notes")
    with Memory.open(tmp_path / "other", home=tmp_path / "home", embedder=FakeEmbedder()) as memory:
        with pytest.raises(ForgetFailed, match="was interrupted"):
            memory.forgetting.finish()
        with pytest.raises(ForgetFailed, match="was interrupted"):
            memory.forgetting.apply(memory.forgetting.plan("Friday"))
    assert other.read_text() == "The dentist is on Friday.\n"
    with open_memory(tmp_path) as memory:
        receipt = memory.forgetting.finish()
        assert receipt.is_finished
