"""The order in which notes came into the index does not show: an answer is the same as after a fresh rebuild."""

import os
import random
from pathlib import Path

import pytest

from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, write_note

WORDS = ["parrot", "zeppelin", "silver", "harbour", "seed", "engine"]
QUERIES = ["parrot", "silver zeppelin", "harbour engine seed", '"parrot seed"', "what about the engine last week"]
NOTES = 90
CLOCK = FrozenClock()
LONG_LINE = " ".join(f"harbour{number} engine" for number in range(400))


def text_of(rng: random.Random) -> str:
    """Few words and few lengths, so that many notes score the same."""
    lines = [" ".join(rng.choice(WORDS) for _ in range(4)) for _ in range(rng.choice([1, 1, 2]))]
    return "\n\n".join(lines) + "\n"


def write(tmp_path: Path, name: str, text: str) -> None:
    os.utime(write_note(tmp_path / "workspace", f"memory/{name}.md", text), (1_700_000_000, 1_700_000_000))


def talk(tmp_path: Path, start: int) -> None:
    with SessionStore.open(home=tmp_path / "home", clock=CLOCK) as sessions:
        session = sessions.get_or_create("telegram", "5054")
        for number in range(start, start + 10):
            sessions.append(session.id, Message.of("user", f"The {WORDS[number % 6]} and the {WORDS[number % 5]}."))


def answers(tmp_path: Path) -> list[object]:
    with open_memory(tmp_path, clock=CLOCK) as memory:
        results = [memory.search(query, max_results=most, min_score=0.0) for query in QUERIES for most in (3, 25)]
    return [[(hit.citation, hit.score, hit.snippet) for hit in result] for result in results]


def sync(tmp_path: Path, *, force: bool = False) -> None:
    with open_memory(tmp_path, clock=CLOCK) as memory:
        memory.sync(force=force)


@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_fresh_rebuild(tmp_path, seed):
    rng = random.Random(seed)
    names = [f"{number:03}" for number in range(NOTES)]
    talk(tmp_path, 0)
    rng.shuffle(names)
    for number, name in enumerate(names):
        write(tmp_path, name, text_of(rng))
        if number % 18 == 0:
            sync(tmp_path)
    for round_ in range(4):
        for name in rng.sample(names, 15):
            write(tmp_path, name, text_of(rng))
        talk(tmp_path, 10 * round_ + 10)
        write(tmp_path, "long", LONG_LINE.replace(f"harbour{200 + round_}", "parrot"))
        sync(tmp_path)
    incremental = answers(tmp_path)
    sync(tmp_path, force=True)
    assert incremental == answers(tmp_path)


def test_of_equally_near_vectors_those_that_come_first_by_path_are_found(tmp_path):
    for name in ("c", "a", "b"):
        for number in range(60):
            write(tmp_path, f"{name}{number:02}", "The parrot is green.\n")
        sync(tmp_path)
    with open_memory(tmp_path) as memory:
        result = memory.search("parrot", max_results=5)
    assert [hit.path for hit in result] == [f"memory/a0{number}.md" for number in range(5)]
