"""Queries in the syntax of FTS5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kept.store.phrases import AllOf, CountedPhrase, Phrase


def quote(phrase: Phrase) -> str:
    """Return a phrase, quoted so that no part of it is read as syntax."""
    quoted = '"' + phrase.text.replace('"', '""') + '"'
    return quoted + " *" if phrase.is_prefix else quoted


def either(phrases: Iterable[CountedPhrase]) -> str:
    """Return the expression that matches chunks with any of the phrases."""
    return " OR ".join(quote(phrase.phrase) for phrase in phrases)


def combine(groups: Sequence[Sequence[CountedPhrase]], *, match_all: bool) -> str:
    """Return the expression that matches chunks with a phrase of every group, or of any group."""
    parts = (f"({either(group)})" if len(group) > 1 else either(group) for group in groups if group)
    return (" AND " if match_all else " OR ").join(parts)


def every(query: AllOf) -> str:
    expression = " AND ".join(map(quote, query.phrases))
    return f"context : ({expression})" if query.in_context else expression
