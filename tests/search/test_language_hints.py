"""The hint for questions in a language that neither the notes nor the model know."""

from __future__ import annotations

import pytest

from kept.embedding.static import StaticEmbedder
from kept.memory import Memory
from tests.support.workspaces import open_memory, write_note

HINT = "kept models pull multilingual"


@pytest.fixture
def memory(tmp_path):
    write_note(tmp_path / "workspace", "memory/health.md", "The dentist appointment is on Friday at nine.\n")
    write_note(tmp_path / "workspace", "memory/house.md", "The roof was repaired by Miller and Sons in spring.\n")
    with open_memory(tmp_path, embedder=StaticEmbedder()) as memory:
        yield memory


def hints(memory: Memory, question: str) -> list[str]:
    return [reason for reason in memory.search(question).degraded if HINT in reason]


@pytest.mark.parametrize("question", ["Wann ist der Termin beim Zahnarzt?", "什么时候看牙医", "когда приём"])
def test_a_question_in_another_language_than_the_notes_gets_one_hint(memory, question):
    assert len(hints(memory, question)) == 1


@pytest.mark.parametrize("question", ["who fixed the roof", "xyzzy plugh", "quarterly tax", "Zahnarzt", "ça va"])
def test_other_questions_get_none(memory, question):
    assert not hints(memory, question)


def test_a_question_in_the_language_of_the_notes_gets_none(memory, tmp_path):
    note = "Der Termin beim Zahnarzt ist am Freitag um neun. Wann ist noch offen, was die Kasse zahlt.\n"
    write_note(tmp_path / "workspace", "memory/zahn.md", note)
    assert not hints(memory, "Wann ist der Termin beim Zahnarzt?")


def test_an_embedder_of_many_languages_needs_none(tmp_path):
    with open_memory(tmp_path) as memory:
        assert not hints(memory, "Wann ist der Termin beim Zahnarzt?")
