"""Lists of the chunks that have a phrase, and BM25 over them. Import this only where numpy may be imported.

The scores are the same to the last bit as those of FTS5: they have its formula, and its order of additions.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from kept.store.phrases import CONTEXT_WEIGHT, TEXT_WEIGHT
from kept.values import frozen

K1, B = 1.2, 0.75
"""Constants of BM25 in FTS5."""
_LEAST_IDF = 1e-6
MAX_HELD = 3_000_000
"""Entries of all lists that are held, of 8 bytes each."""
_MOST_COUNTED, _MOST_IN_INT32 = 0xFFFF, 0x7FFF_FFFF

Array = Any
"""An array of numpy."""


@frozen
class Postings:
    """The chunks that have a phrase, by row, and how often their text and their context have it."""

    rows: Array
    text: Array
    context: Array


@frozen
class JoinedLists:
    """Lists of several phrases end to end, with the number of the phrase at each entry."""

    rows: Array
    text: Array
    context: Array
    numbers: Array


@frozen
class WordTotals:
    """Sums over all chunks."""

    chunks: int
    text_words: int
    all_words: int
    """Words in texts and contexts."""


class PostingCache:
    """The lists that were read last, up to a number of entries in all. It is empty after the index has changed."""

    def __init__(self, max_held: int = MAX_HELD) -> None:
        self._max_held = max_held
        self._lists: dict[Hashable, Postings] = {}
        self._held = 0
        self._state: object = None

    def find(self, key: Hashable, state: object) -> Postings | None:
        if state != self._state:
            self._lists, self._held, self._state = {}, 0, state
        postings = self._lists.pop(key, None)
        if postings is not None:
            self._lists[key] = postings  # the last used is the last to go
        return postings

    def put(self, key: Hashable, postings: Postings) -> None:
        self._lists[key] = postings
        self._held += len(postings.rows)
        while self._held > self._max_held:
            oldest = next(iter(self._lists))
            self._held -= len(self._lists.pop(oldest).rows)


def count_postings(keys: Array) -> Postings:
    """Return the postings of a phrase that occurs at ``keys``, in order: twice the row, and 1 more in the context."""
    if not len(keys):
        return make_postings(keys, keys, keys)
    rows = keys >> 1
    ends = np.flatnonzero(rows[1:] != rows[:-1]) + 1
    first = np.concatenate(([0], ends))
    context = np.add.reduceat(keys & 1, first)
    total = np.concatenate((ends, [len(keys)])) - first
    return make_postings(rows[first], total - context, context)


def list_postings(counted: Iterable[tuple[int, int, int]]) -> Postings:
    """Return the postings with these rows and counts in text and context, in the order of rows."""
    columns = np.array([*counted], dtype=np.int64).reshape(-1, 3)
    return make_postings(*columns.T)


def make_postings(rows: Array, text: Array, context: Array) -> Postings:
    """Return postings that take little memory. Above 65,535, it makes no difference how often a chunk has a word."""
    text, context = (np.minimum(counts, _MOST_COUNTED).astype(np.uint16) for counts in (text, context))
    return Postings(rows.astype(np.int32) if not len(rows) or rows[-1] <= _MOST_IN_INT32 else rows, text, context)


def join_lists(lists: Sequence[Postings]) -> JoinedLists:
    numbers = np.repeat(np.arange(len(lists)), [len(postings.rows) for postings in lists])
    columns = zip(*((postings.rows, postings.text, postings.context) for postings in lists), strict=True)
    rows, text, context = map(np.concatenate, columns)
    return JoinedLists(rows, text, context, numbers)


def score_bm25(
    joined: JoinedLists,
    chunks: Sequence[int],
    lengths: Array,
    totals: WordTotals,
    *,
    ranked: int,
    weights: tuple[float, float] = (TEXT_WEIGHT, CONTEXT_WEIGHT),
) -> tuple[Array, Array]:
    """Return the rows of the first ``ranked`` lists, and their scores by all lists.

    ``chunks`` has how many chunks have each phrase. `bincount` adds in the order of the lists, like FTS5.
    """
    idf = [max(_LEAST_IDF, math.log((totals.chunks - count + 0.5) / (count + 0.5))) for count in chunks]
    rows, rarity = joined.rows, np.array(idf)[joined.numbers]
    frequency = joined.text * weights[0] + joined.context * weights[1]
    if ranked < len(chunks):
        is_ranked = np.zeros(len(lengths), dtype=bool)
        is_ranked[rows[joined.numbers < ranked]] = True
        at = np.flatnonzero(is_ranked[rows])
        rows, rarity, frequency = rows[at], rarity[at], frequency[at]
    damping = K1 * (1 - B + B * lengths[rows] / (totals.all_words / totals.chunks))
    scores = np.bincount(rows, rarity * ((frequency * (K1 + 1.0)) / (frequency + damping)))
    all_rows = np.flatnonzero(scores)
    return all_rows, scores[all_rows]
