"""SQLite and PostgreSQL give the same answers: hits, order, parts, grades and what was dropped."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept import Memory
from kept.config import load_config
from kept.indexing.index_handle import IndexLimits
from kept.sessions.entries import Message
from kept.sessions.store import SessionStore
from kept.store.vector_scan import VectorLimits
from kept.testing import FakeEmbedder, FrozenClock
from tests.support.many_scripts import WORDS, describe, note_text, sentence
from tests.support.teams import Team

CLOCK = FrozenClock()
FOLDERS = [
    "memory/a",
    "memory/b",
    "memory/c",
    "memory/2025-11-0",
    "memory/projects/boat/p",
    "memory/private/telegram-5054/s",
    "memory/private/other/s",
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
    {"since": "2025-06-01"},
    {"as_of": "2026-01-01"},
    {"channel": "telegram"},
    {"project": "boat"},
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
    match rng.randrange(6):
        case 0:
            return f'"{text}"'
        case 1:
            return f"{rng.choice(WORDS[script])[:3]}*"
        case 2:
            return f"{text} harbuor backups user name"  # a typo, a compound and parts of an identifier
        case 3:
            return rng.choice(WORDS[script])[:1]
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

    def open(self, driver: str, options: dict[str, Any], vectors: VectorLimits = SMALL_PACKS) -> Memory:
        store = {"driver": driver, "url": self._team.server.url, "schema": self._team.schema}
        chosen = {f"memory_search.store.{name}": value for name, value in store.items()}
        chosen = {**chosen, "memory_search.query.min_score": 0.0, **options}
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
        with SessionStore.open(home=self.home, clock=CLOCK) as sessions:
            session = sessions.get_or_create(rng.choice(["telegram", "discord"]), "5054")
            for number in range(rng.randint(0, 4)):
                text = sentence(rng, rng.choice([*WORDS]), rng.randint(1, 8)) + rng.choice(["", "?"])
                sessions.append(session.id, Message.of("assistant" if number % 3 == 2 else "user", text))


@pytest.fixture(scope="module")
def two_stores(shared_team: Team, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], TwoStores]:
    folder = tmp_path_factory.mktemp("stores")
    return lambda: TwoStores(folder / os.urandom(6).hex(), shared_team)


@pytest.mark.slow
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32))
def test_both_stores_give_the_same_answers(two_stores: Callable[[], TwoStores], seed: int) -> None:
    rng = random.Random(seed)
    stores = two_stores()
    for _ in range(2):
        stores.change(rng)
        options = rng.choice(HYBRID)
        with stores.open("sqlite", options) as one, stores.open("postgres", options) as other:
            assert one.sync().chunks == other.sync().chunks
            with other.index_service.inspecting() as (index, _):
                assert index.find_damage() == []
            for _ in range(6):
                query, filters = question(rng), rng.choice(FILTERS)
                limit = rng.choice([1, 5, 30])
                views = (one, other)
                if rng.random() < 0.3:
                    views = (one.as_person("telegram:5054"), other.as_person("telegram:5054"))
                expected, actual = (describe(view, query, max_results=limit, **filters) for view in views)
                assert actual == expected, (query, filters, options)
            assert one.list(max_results=50) == other.list(max_results=50)


@pytest.mark.slow
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_both_stores_find_the_same_candidates_by_sign_bits(two_stores: Callable[[], TwoStores], seed: int) -> None:
    rng = random.Random(seed)
    stores = two_stores()
    for _ in range(3):  # so that packs have dead rows, and rows are in no pack: others in each store
        for _ in range(4):
            stores.change(rng)
        options = rng.choice(HYBRID[:3])
        with stores.open("sqlite", options, SIGN_BITS) as one, stores.open("postgres", options, SIGN_BITS) as other:
            assert one.sync().chunks == other.sync().chunks > SIGN_BITS.bits_above
            for _ in range(6):
                query, filters = question(rng), rng.choice([{}, *FILTERS])
                limit = rng.choice([1, 2, 5])
                expected, actual = (describe(memory, query, max_results=limit, **filters) for memory in (one, other))
                assert actual == expected, (query, filters, options)
