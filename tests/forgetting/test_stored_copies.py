"""Copies that are not notes or conversations: files of others, temporary files, and old versions of notes."""

import pytest

from kept.base.durable import replacing
from kept.errors import NoteConflict
from kept.storage.contract import Append
from kept.storage.open import open_agent
from tests.support.files import write_file
from tests.support.histories import versions_of
from tests.support.planted_words import start_planting
from tests.support.workspaces import open_memory


@pytest.fixture
def planted(tmp_path):
    with open_memory(tmp_path) as memory:
        home = start_planting(memory)
        yield home
        home.sessions.close()


def test_files_of_the_user_and_schedules_stay_and_are_named(planted):
    planted.note("pets.md", "- hedgehog\n")
    files = (planted.home / "exports" / "talk.md", planted.folder / "schedules.json")
    for file in files:
        write_file(file, '{"text": "The hedgehog said so."}\n')
    receipt = planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    assert receipt.is_finished
    assert {file.path for file in receipt.left} == set(map(str, files))
    assert {file.read_text() for file in files} == {'{"text": "The hedgehog said so."}\n'}


def test_a_temporary_file_of_a_killed_process_goes_and_one_that_is_being_written_stays(planted):
    left = planted.workspace / "memory" / ".kept-0123456789abcdef.tmp"
    left.write_text("- hedgehog\n")
    planted.note("pets.md", "- hedgehog\n")
    with replacing(str(planted.home / "other.txt")) as file:
        file.write(b"still at it")
        file.flush()
        receipt = planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
        assert receipt.is_finished
    assert not left.exists()
    assert (planted.home / "other.txt").read_bytes() == b"still at it"


def test_bytes_that_a_crash_tore_or_that_lost_against_an_editor_go_too(planted):
    planted.note("pets.md", "- hedgehog\n")
    write_file(planted.folder / "x.jsonl", '{"text": "hedgehog')
    open_agent(planted.memory.config).commit([Append("x.jsonl", [b"{}"])])
    write_file(planted.workspace / ".kept/displaced/0123", "a note about the hedgehog\n")
    plan = planted.memory.forgetting.plan("hedgehog")
    assert [place.kind for place in plan.places] == ["note", "record", "record"]
    assert planted.memory.forgetting.apply(plan).left == ()
    assert planted.left("hedgehog") == []


def test_old_versions_of_a_note_that_goes_as_a_whole_go_too(planted):
    planted.note("hedgehog.md", "Its name says it all, under any name.\n")
    planted.memory.sync()
    (planted.workspace / "memory" / "hedgehog.md").rename(planted.workspace / "memory" / "pet.md")
    planted.memory.sync()
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("memory/pet.md"))
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    assert not any(b"says it all" in data for _, data in versions_of(planted.workspace))
    assert planted.left("hedgehog") == []


def test_an_undo_of_what_was_forgotten_says_so_and_brings_nothing_back(planted):
    planted.memory.sync()
    planted.memory.add("The hedgehog has 99.", to="memory/pets.md")
    planted.memory.add("- hedgehog\n\nThe owl has 98.", to="memory/pets.md")
    planted.memory.add("The fox has 97.", to="memory/pets.md")
    fox, both, hedgehog = planted.memory.history.changes("memory/pets.md")
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    changes = {change.id: change for change in planted.memory.history.changes()}
    assert not changes[fox.id].forgotten, "only other lines of the note went"
    assert changes[both.id].forgotten == "part"
    assert changes[hedgehog.id].forgotten == "all"
    assert "hedgehog" not in planted.memory.history.diff(changes[both.id])
    assert planted.memory.history.diff(changes[hedgehog.id]).endswith("(text of this change was forgotten)\n")
    result = planted.memory.history.undo(both.id)
    assert "was forgotten" in result.degraded[0]
    text = (planted.workspace / "memory" / "pets.md").read_text()
    assert "owl" not in text
    assert "fox" in text
    assert planted.left("hedgehog") == []


def test_a_change_that_is_forgotten_as_a_whole_is_not_taken_back(planted):
    planted.note("pets.md", "- owl\n")
    planted.memory.sync()
    planted.memory.add("- hedgehog", to="memory/pets.md")
    change = next(iter(planted.memory.history.changes()))
    planted.memory.forgetting.apply(planted.memory.forgetting.plan("hedgehog"))
    with pytest.raises(NoteConflict, match="was forgotten"):
        planted.memory.history.undo(change.id)
    assert planted.left("hedgehog") == []
