"""The cache of embeddings holds codes, and reads the float32 vectors of older files."""

from __future__ import annotations

import struct

import pytest

from kept.store.index import Index
from kept.store.integrity import check_index
from kept.store.vector_codes import quantise

VECTOR = struct.pack("<4f", 0.5, -0.5, 0.1, 0.7)


@pytest.fixture
def index(tmp_path):
    index = Index(str(tmp_path / "index.sqlite"))
    yield index
    index.close()


def test_a_cached_vector_has_the_code_of_the_one_that_was_put(index):
    with index.writing():
        index.cache.put("model", [(b"key", VECTOR)], now_s=1)
    assert index.db.execute("SELECT length(embedding), dims FROM embedding_cache").get == (4, 4)
    vectors = index.cache.find("model", [b"key"], 4)
    assert quantise(vectors[b"key"]) == quantise(VECTOR)
    assert index.cache.find("model", [b"key"], 3) == {}
    assert check_index(index) == []


def test_a_vector_that_an_older_version_cached_is_found(index):
    with index.writing():
        index.db.execute("INSERT INTO embedding_cache VALUES ('model', ?, ?, 4, 1)", (b"key", VECTOR))
    assert index.cache.find("model", [b"key"], 0) == {b"key": VECTOR}
    assert check_index(index) == []
