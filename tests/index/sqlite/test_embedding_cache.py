"""The cache of embeddings holds codes and drops what is used least."""

from pathlib import Path

import pytest

from kept.index.sqlite.embedding_cache import EmbeddingCache, find_cache_path

CODE = bytes([64, 192, 13, 90])


@pytest.fixture
def cache(tmp_path):
    cache = EmbeddingCache(str(tmp_path / "embeddings.sqlite"))
    yield cache
    cache.close()


def test_a_code_is_found_by_its_embedder_its_text_and_its_dimensions(cache):
    cache.put("model", {b"key": CODE}, now_s=1)
    assert cache.find("model", [b"key", b"other"], 4) == {b"key": CODE}
    assert cache.find("model", [b"key"], 0) == {b"key": CODE}
    assert cache.find("model", [b"key"], 3) == {}
    assert cache.find("other", [b"key"], 4) == {}


def test_what_was_used_longest_ago_is_dropped_above_the_limit(cache):
    for number in range(6):
        cache.put("model", {bytes([number]): CODE}, now_s=number)
    cache.put("model", {}, used=[bytes([0])], now_s=100_000)
    assert cache.evict(4) == 2
    assert [*cache.find("model", [bytes([n]) for n in range(6)], 4)] == [bytes([n]) for n in (0, 3, 4, 5)]
    assert (cache.evict(4), cache.count()) == (0, 4)


def test_reading_a_cache_that_does_not_exist_creates_no_file(cache):
    cache.put("model", {}, used=[b"key"], now_s=1)
    assert (cache.find("model", [b"key"], 4), cache.count(), cache.evict(0)) == ({}, 0, 0)
    assert not Path(cache.path).exists()


def test_only_the_entries_of_texts_that_are_left_stay(cache):
    cache.put("model", {bytes([number]) * 32: CODE for number in range(100)}, now_s=1)
    cache.keep_only({bytes([7]) * 32})
    assert cache.count() == 1
    cache.close()
    assert bytes([9]) * 32 not in Path(cache.path).read_bytes()


@pytest.mark.parametrize(
    ("index", "cache"),
    [
        ("index.sqlite", "embeddings.sqlite"),
        ("index-0a1b.sqlite", "embeddings-0a1b.sqlite"),
        ("notes.sqlite", "embeddings-notes.sqlite"),
    ],
)
def test_each_index_has_a_cache_of_its_own_beside_it(index, cache):
    assert find_cache_path(f"/home/{index}") == f"/home/{cache}"
