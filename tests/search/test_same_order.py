"""The order in which notes came into the index does not show: an answer is the same as after a fresh rebuild."""

import os
import random
from pathlib import Path

import pytest

from kept import Memory
from kept.config import load_config
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.testing import FakeEmbedder, FrozenClock

WORDS = ["parrot", "zeppelin", "silver", "harbour", "seed", "engine"]
QUERIES = ["parrot", "silver zeppelin", "harbour engine seed", '"parrot seed"', "what about the engine last week"]
NOTES = 90
CLOCK = FrozenClock()
LONG_LINE = " ".join(f"harbour{number} engine" for number in range(400))


def text_of(rng: random.Random) -> str:
    """Few words and few lengths, so that many notes score the same."""
    lines = [" ".join(rng.choice(WORDS) for _ in range(4)) for _ in range(rng.choice([1, 1, 2]))]
    return "\n\n".join(lines) + "\n"


def write_note(workspace: Path, name: str, text: str) -> None:
    path = workspace / "memory" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1_700_000_000, 1_700_000_000))


def talk(home: Path, start: int) -> None:
    with SessionStore.open(home=home, clock=CLOCK) as sessions:
        session = sessions.get_or_create("telegram", "5054")
        for number in range(start, start + 10):
            sessions.append(session.id, Message.of("user", f"The {WORDS[number % 6]} and the {WORDS[number % 5]}."))


def open_memory(workspace: Path, home: Path, settings: dict[str, object] | None = None) -> Memory:
    config = load_config(workspace=str(workspace), home=str(home), settings=settings).config
    return Memory(config, embedder=FakeEmbedder(), clock=CLOCK)


def answers(workspace: Path, home: Path) -> list[object]:
    answers: list[object] = []
    options = {"memory_search.query.min_score": 0.0}
    with open_memory(workspace, home, options) as memory:
        for query in QUERIES:
            for limit in (3, 25):
                result = memory.search(query, max_results=limit)
                answers.append([(hit.citation, hit.score, hit.snippet) for hit in result])
    return answers


def sync(workspace: Path, home: Path, *, force: bool = False) -> None:
    with open_memory(workspace, home) as memory:
        memory.sync(force=force)


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_fresh_rebuild(tmp_path, seed):
    workspace, home = tmp_path / "notes", tmp_path / "home"
    rng = random.Random(seed)
    names = [f"{number:03}" for number in range(NOTES)]
    talk(home, 0)
    rng.shuffle(names)
    for number, name in enumerate(names):
        write_note(workspace, name, text_of(rng))
        if number % 18 == 0:
            sync(workspace, home)
    for round_ in range(4):
        for name in rng.sample(names, 15):
            write_note(workspace, name, text_of(rng))
        talk(home, 10 * round_ + 10)
        write_note(workspace, "long", LONG_LINE.replace(f"harbour{200 + round_}", "parrot"))
        sync(workspace, home)
    incremental = answers(workspace, home)
    sync(workspace, home, force=True)
    assert incremental == answers(workspace, home)


def test_of_equally_near_vectors_those_that_come_first_by_path_are_found(tmp_path):
    for name in ("c", "a", "b"):
        for number in range(60):
            write_note(tmp_path / "notes", f"{name}{number:02}", "The parrot is green.\n")
        sync(tmp_path / "notes", tmp_path / "home")
    with Memory.open(tmp_path / "notes", home=tmp_path / "home", embedder=FakeEmbedder()) as memory:
        result = memory.search("parrot", max_results=5)
    assert [hit.path for hit in result] == [f"memory/a0{number}.md" for number in range(5)]
