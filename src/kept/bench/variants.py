"""The variants that are compared over one index: the user's settings, and the baselines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kept.bench.metrics import BUDGET_TOKENS
from kept.config import Config, QuerySettings
from kept.embedding.base import Calibration, Embedder, Identity, Role
from kept.records import Matrix
from kept.search.selection import MAX_CHARS

KEPT = "kept"
_FEWEST, _FEWEST_FOR_SESSIONS, _MOST = 12, 40, 50
_SEED_WORD = re.compile(r"[A-Za-z0-9_]+")


def hits_to_ask_for(text_tokens: int, text_chars: int, chunks: int, *, sessions: bool = False) -> int:
    """Return the number of hits to request for every query and variant of a set.

    A user asks for six. This is enough for ten documents, or ten different sessions, and for 2,000 tokens of snippets.
    """
    snippet_chars = min(MAX_CHARS, text_chars / max(1, chunks))
    snippet_tokens = max(1.0, snippet_chars * text_tokens / max(1, text_chars))
    fewest = _FEWEST_FOR_SESSIONS if sessions else _FEWEST
    return min(_MOST, max(fewest, round(1.25 * BUDGET_TOKENS / snippet_tokens)))


def _keyword(query: QuerySettings) -> QuerySettings:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, enabled=False))


def _vector(query: QuerySettings) -> QuerySettings:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, vector_weight=1.0, text_weight=0.0))


def _seed(query: QuerySettings) -> QuerySettings:
    hybrid = replace(
        query.hybrid,
        enabled=True,
        fusion="weighted",
        match="all",
        vector_weight=0.7,
        text_weight=0.3,
        candidate_multiplier=4,
    )
    return replace(query, min_score=0.35, hybrid=hybrid)


BASELINES: dict[str, Callable[[QuerySettings], QuerySettings]] = {"keyword": _keyword, "vector": _vector, "seed": _seed}
"""Words alone and vectors alone have no threshold: theirs would have to be another one, and without one they are harder
to beat. `seed` has the settings that Kept started from."""


def text_for(name: str, text: str) -> str:
    """Return the text of a query for a variant.

    `seed` quotes every word, so that stop words count too. It splits ASCII words only; any other text is asked as it
    is, which can only help it.
    """
    words = _SEED_WORD.findall(text)
    return " ".join(f'"{word}"' for word in words) if name == "seed" and words and text.isascii() else text


class SeedEmbedder:
    """The same embedder with cosines as scores, and without the quotes of `text_for`."""

    calibration = Calibration(floor=0.0, ceiling=1.0)

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def identity(self) -> Identity:
        return self._embedder.identity

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        return self._embedder.embed([text.replace('"', "") for text in texts], role=role)


def embedder_for(name: str, embedder: Embedder | None) -> Embedder | None:
    return SeedEmbedder(embedder) if name == "seed" and embedder is not None else embedder


def with_variant(config: Config, name: str) -> Config:
    if name == KEPT:
        return config
    search = replace(config.memory_search, query=BASELINES[name](config.memory_search.query))
    return replace(config, agent=replace(config.agent, memory_search=search))
