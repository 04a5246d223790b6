"""Words alone and vectors alone, to compare Kept with. They have no threshold: each would need one of its own."""

from __future__ import annotations

from dataclasses import replace

from kept.config import Config


def with_variant(config: Config, name: str) -> Config:
    """Return the settings for "keyword" or "vector", and for any other name those of the user."""
    query = config.memory_search.query
    if name == "keyword":
        query = replace(query, min_score=0.0, hybrid=replace(query.hybrid, enabled=False))
    elif name == "vector":
        query = replace(query, min_score=0.0, hybrid=replace(query.hybrid, vector_weight=1.0, text_weight=0.0))
    return replace(config, agent=replace(config.agent, memory_search=replace(config.memory_search, query=query)))
