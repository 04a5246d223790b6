"""Words as the index stores them: by the tokenizer of FTS5, so that they are the same in every store."""

from __future__ import annotations

import hashlib
from typing import Any

import apsw

from kept.store.word_index import TOKENIZER

_MAX_STEM = 400
"""Characters of a stem that are stored. An entry of a B-tree has at most 2,700 bytes."""


class Stemmer:
    def __init__(self) -> None:
        self._db = apsw.Connection(":memory:")
        self._tokenizer: Any = self._db.fts5_tokenizer(*TOKENIZER)

    def stems(self, text: str) -> list[str]:
        """Return the words of a text as the index stores them."""
        stems: list[str] = self._tokenizer(
            text.encode("utf-8", "replace"),
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )
        return [shorten(stem) for stem in stems]


def shorten(stem: str) -> str:
    """Return a stem that can be stored: a long one by its beginning and a hash."""
    if len(stem) <= _MAX_STEM:
        return stem
    return stem[:_MAX_STEM] + hashlib.sha256(stem.encode("utf-8", "replace")).hexdigest()
