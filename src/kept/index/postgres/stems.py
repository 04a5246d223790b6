"""Stems of words, as SQLite's full-text index makes them, so that both indexes know the same words."""

from __future__ import annotations

import threading
from typing import Any

import apsw

from kept.index.sqlite.word_index import TOKENIZER

_local = threading.local()


def stems_of(text: str) -> list[str]:
    """Return the stems of a text in order. Each thread has a tokenizer of its own: a connection has one user."""
    if not hasattr(_local, "tokenizer"):
        _local.db = apsw.Connection(":memory:")
        _local.tokenizer = _local.db.fts5_tokenizer(*TOKENIZER)
    tokens: Any = _local.tokenizer(text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_DOCUMENT, None)
    return [token[2] for token in tokens]
