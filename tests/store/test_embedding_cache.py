"""The cache of embeddings holds codes, drops what is used least, and reads the float32 vectors of older files."""

from __future__ import annotations

import struct

import pytest

from kept.store.vector_codes import quantise

VECTOR = struct.pack("<4f", 0.5, -0.5, 0.1, 0.7)


def test_a_cached_vector_has_the_code_of_the_one_that_was_put(index):
    with index.writing():
        index.cache.put("model", [(b"key", VECTOR)], now_s=1)
    vectors = index.cache.find("model", [b"key"], 4)
    assert quantise(vectors[b"key"]) == quantise(VECTOR)
    assert [*index.cache.find("model", [b"key"], 0)] == [b"key"]
    assert index.cache.find("model", [b"key"], 3) == {}
    assert index.cache.find("other", [b"key"], 4) == {}
    assert index.find_damage() == []


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)  # only a file can be older than codes in the cache
def test_a_vector_that_an_older_version_cached_is_found(index):
    with index.writing():
        index.db.execute("INSERT INTO embedding_cache VALUES ('model', ?, ?, 4, 1)", (b"key", VECTOR))
    assert index.cache.find("model", [b"key"], 0) == {b"key": VECTOR}
    assert index.find_damage() == []
