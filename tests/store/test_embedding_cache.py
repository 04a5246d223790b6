"""The cache of embeddings holds codes, drops what is used least, and reads the float32 vectors of older files."""

from __future__ import annotations

import struct

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


def test_what_was_used_longest_ago_is_dropped_above_the_limit(index):
    with index.writing():
        for number in range(6):
            index.cache.put("model", [(bytes([number]), VECTOR)], now_s=number)
        assert index.cache.evict(4) == 2
    assert [*index.cache.find("model", [bytes([number]) for number in range(6)], 4)] == [
        bytes([n]) for n in range(2, 6)
    ]


def test_a_vector_that_an_older_version_cached_is_found(index):
    with index.writing():
        index.db.execute("INSERT INTO embedding_cache VALUES ('model', ?, ?, 4, 1)", (b"key", VECTOR))
    assert index.cache.find("model", [b"key"], 0) == {b"key": VECTOR}
    assert index.find_damage() == []
