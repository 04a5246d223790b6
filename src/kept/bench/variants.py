"""What is compared in one run: the user's settings, and the baselines over the same index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kept.config import Config, Query

KEPT = "kept"
ASKED_FOR = 50
"""Hits that are asked for: enough for ten documents and for 2,000 tokens, where a user would want six."""


def _keyword(query: Query) -> Query:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, enabled=False))


def _vector(query: Query) -> Query:
    return replace(query, min_score=0.0, hybrid=replace(query.hybrid, vector_weight=1.0, text_weight=0.0))


def _seed(query: Query) -> Query:
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


BASELINES: dict[str, Callable[[Query], Query]] = {"keyword": _keyword, "vector": _vector, "seed": _seed}
"""Words alone and meaning alone have no threshold: theirs would have to be another, and this is the harder
comparison. `seed` has the settings that Kept grew from."""


def with_variant(config: Config, name: str) -> Config:
    if name == KEPT:
        return config
    search = replace(config.memory_search, query=BASELINES[name](config.memory_search.query))
    return replace(config, agent=replace(config.agent, memory_search=search))
