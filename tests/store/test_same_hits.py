"""SQLite and PostgreSQL give the same answers: hits, order, parts, grades and what was dropped."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept import Memory
from kept.config import load_config
from kept.errors import KeptError
from kept.indexing.copy_index import copy_index
from kept.indexing.index_handle import IndexLimits
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.store.vector_scan import VectorLimits
from kept.testing import FakeEmbedder, FrozenClock
from tests.support.index_dump import dump_index
from tests.support.many_scripts import WORDS, describe, note_text, sentence
from tests.support.teams import Team

CLOCK = FrozenClock()
PERSON = "telegram:5054"
FOLDERS = [
    "memory/a",
    "memory/b",
    "memory/c",
    "memory/2025-11-0",
    "memory/projects/boat/p",
    "memory/projects/kite/p",
    "memory/private/5054@telegram/s",
    "memory/private/7@discord/s",
]
SMALL_PACKS = VectorLimits(pack_rows=30, pack_when=8, few_rows=5)
SIGN_BITS = VectorLimits(pack_rows=30, pack_when=8, few_rows=5, bits_above=20, least_rescored=10, rescored_per_result=0)
"""Above 20 vectors, ten candidates are found by their sign bits: fewer than there are, so it shows which."""
FILTERS: list[dict[str, Any]] = [
    {},
    {"path": "memory/a*"},
    {"path": "memory/[a-b]?.md"},
    {"path": "memory/[^a]*"},
    {"path": "memory"},
    {"source": "sessions"},
    {"source": "memory"},
    {"tags": "bird"},
    {"tags": ["bird", "area"]},
    {"since": "2025-06-01"},
    {"until": "2025-06-01"},
    {"as_of": "2025-11-15"},
    {"as_of": "2026-01-01", "tags": "area/home"},
    {"channel": "telegram"},
    {"session": PERSON},
    {"project": "boat"},
    {"project": "none", "path": "memory/*[1-3].md"},
]
HYBRID = [
    {},
    {"memory_search.query.hybrid.match": "all"},
    {"memory_search.query.hybrid.fusion": "rrf"},
    {"memory_search.query.hybrid.enabled": False},
]


def question(rng: random.Random) -> str:
    script = rng.choice([*WORDS])
    text = sentence(rng, script, rng.randint(1, 4))
    match rng.randrange(7):
        case 0:
            return f'"{text}"'
        case 1:
            return f"{rng.choice(WORDS[script])[:3]}*"
        case 2:
            return f"{text} harbuor backups user name"  # a typo, a compound and parts of an identifier
        case 3:
            return rng.choice(WORDS[script])[:1]
        case 4:
            return f"{text} {rng.choice(['in November 2025', 'last year', 'since 2024'])}"
        case _:
            return text


class TwoStores:
    """The same notes and conversations in both stores."""

    def __init__(self, folder: Path, team: Team) -> None:
        self.workspace = folder / "workspace"
        shutil.rmtree(folder, ignore_errors=True)
        (self.workspace / "memory" / "projects" / "boat").mkdir(parents=True)
        self.home = folder / "home"
        self._team = team

    @contextmanager
    def both(self, options: dict[str, Any], vectors: VectorLimits = SMALL_PACKS) -> Iterator[tuple[Memory, Memory]]:
        with self.open("sqlite", options, vectors) as one, self.open("postgres", options, vectors) as other:
            yield one, other

    def open(self, driver: str, options: dict[str, Any], vectors: VectorLimits) -> Memory:
        store = {**self._team.options, "memory_search.store.driver": driver}
        chosen = {**store, "memory_search.query.min_score": 0.0, **options}
        config = load_config(workspace=str(self.workspace), home=str(self.home), settings=chosen).config
        limits = IndexLimits(vectors=vectors, batch_files=5)
        return Memory(config, embedder=FakeEmbedder(), clock=CLOCK, limits=limits)

    def change(self, rng: random.Random) -> None:
        """Write, change and remove notes, and talk."""
        for _ in range(rng.randint(3, 12)):
            folder = rng.choice(FOLDERS)
            path = self.workspace / f"{folder}{rng.randrange(1, 6)}.md"
            if path.exists() and rng.random() < 0.3:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(note_text(rng), encoding="utf-8")
            moment = 1_700_000_000 + rng.randrange(5) * 20_000_000
            os.utime(path, (moment, moment))
        self.talk(rng, rng.choice(["telegram", "discord"]), rng.choice(["5054", "7"]), rng.randint(0, 4))

    def talk(self, rng: random.Random, channel: str, user: str, messages: int) -> None:
        with SessionStore.open(home=self.home, clock=CLOCK) as sessions:
            session = sessions.get_or_create(channel, user)
            for number in range(messages):
                text = sentence(rng, rng.choice([*WORDS]), rng.randint(1, 8)) + rng.choice(["", "?"])
                sessions.append(session.id, Message.of("assistant" if number % 3 == 2 else "user", text))


@pytest.fixture(scope="module")
def two_stores(shared_team: Team, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], TwoStores]:
    folder = tmp_path_factory.mktemp("stores")
    return lambda: TwoStores(folder / os.urandom(6).hex(), shared_team)


def assert_same_answer(memories: tuple[Memory, Memory], query: str, **options: Any) -> int:
    """Compare the answers of both, or the errors. Return the number of hits."""
    (expected, hits), (actual, _) = (_answer(memory, query, **options) for memory in memories)
    assert actual == expected, (query, options)
    return hits


def _answer(memory: Memory, query: str, **options: Any) -> tuple[Any, int]:
    try:
        answer = describe(memory, query, **options)
    except KeptError as exc:
        return (type(exc), exc.message), 0
    return answer, len(answer[0])


def assert_same_lists(one: Memory, other: Memory) -> None:
    for order in ("time", "change"):
        lists = (memory.list(source=None, order=order, max_results=50) for memory in (one, other))
        assert next(lists) == next(lists)
    assert one.notes.tags() == other.notes.tags()
    assert one.notes.broken_links() == other.notes.broken_links()
    if (path := one.workspace.root + "/memory/a1.md") and os.path.exists(path):
        assert one.notes.links("memory/a1.md") == other.notes.links("memory/a1.md")
    with other.index_service.inspecting() as (index, _):
        assert index.find_damage() == []
    assert dump_index(one) == dump_index(other)


@pytest.mark.slow
@pytest.mark.parametrize("options", HYBRID, ids=lambda options: "-".join(map(str, options.values())) or "usual")
def test_every_filter_selects_the_same_in_every_script(two_stores: Callable[[], TwoStores], options: Any) -> None:
    rng = random.Random(15)
    stores = two_stores()
    for _ in range(6):
        stores.change(rng)
    stores.talk(rng, *PERSON.split(":"), 20)
    found = dict.fromkeys(map(str, FILTERS), 0)
    with stores.both(options) as both:
        views = tuple(memory.as_person(PERSON) for memory in both)
        for filters in FILTERS:
            for words in [*WORDS.values()] if options == {} else rng.sample([*WORDS.values()], 3):
                query = " ".join(rng.sample(words, 2))
                found[str(filters)] += assert_same_answer(both, query, max_results=30, **filters)
            assert_same_answer(views, query, max_results=30, **filters)
        assert options or all(found.values()), found  # each filter has let something through


@pytest.mark.slow
@settings(max_examples=9)
@given(seed=st.integers(0, 2**32))
def test_both_stores_give_the_same_answers_after_any_changes(two_stores: Callable[[], TwoStores], seed: int) -> None:
    rng = random.Random(seed)
    stores = two_stores()
    for _ in range(2):
        options = rng.choice(HYBRID)
        with stores.both(options) as both:
            for _ in range(2):  # the second time, with what is in memory of the first
                stores.change(rng)
                for _ in range(4):
                    views = both
                    if rng.random() < 0.3:
                        views = (both[0].as_person(PERSON), both[1].as_person(PERSON))
                    filters = {**rng.choice(FILTERS), **rng.choice(FILTERS)}
                    assert_same_answer(views, question(rng), max_results=rng.choice([1, 5, 30]), **filters)
                assert both[0].sync().chunks == both[1].sync().chunks
            assert_same_lists(*both)


@pytest.mark.slow
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_copies_of_an_index_give_the_same_answers(two_stores: Callable[[], TwoStores], seed: int) -> None:
    rng = random.Random(seed)
    stores = two_stores()
    for to_postgres in (True, False):
        stores.change(rng)
        with stores.both({}) as (one, other):
            source = one if to_postgres else other
            source.sync()
            copy_index(source.index_service, to_postgres=to_postgres)
        with stores.both({}) as both:
            assert [memory.sync().indexed for memory in both] == [0, 0]
            for _ in range(6):
                assert_same_answer(both, question(rng), max_results=30, **rng.choice(FILTERS))
            assert_same_lists(*both)


@pytest.mark.slow
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32))
def test_both_stores_find_the_same_candidates_by_sign_bits(two_stores: Callable[[], TwoStores], seed: int) -> None:
    rng = random.Random(seed)
    stores = two_stores()
    for _ in range(3):  # so that packs have dead rows, and rows are in no pack: others in each store
        for _ in range(4):
            stores.change(rng)
        with stores.both(rng.choice(HYBRID[:3]), SIGN_BITS) as both:
            one, other = both
            assert one.sync().chunks == other.sync().chunks > SIGN_BITS.bits_above
            for _ in range(6):
                assert_same_answer(both, question(rng), max_results=rng.choice([1, 2, 5]), **rng.choice(FILTERS))
