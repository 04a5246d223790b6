"""Ranking in memory against SQLite's own: the same rows, counts and ties, whatever happens to the index."""

import hashlib
import random

import pytest

from kept.base.records import Filter
from kept.index.sqlite.index import Index
from kept.index.sqlite.rows import FileRow, FileWrite, NewChunk
from kept.index.sqlite.word_index import CountedPhrase, Phrase, PhraseSearch
from kept.index.sqlite.word_lists import ListedPhraseSearch, decode_sizes
from tests.support.workspaces import open_memory, write_note

WORDS = [f"{start}{end}" for start in "baker calm delta ember frost".split() for end in ("", "ade", "ish", "um")]
HOUR_MS = 3_600_000


def make_chunk(rng: random.Random, path: str, line: int) -> NewChunk:
    text = " ".join(rng.choices(WORDS, weights=range(1, len(WORDS) + 1), k=rng.randint(3, 40)))
    context = " ".join(rng.choices(WORDS, k=rng.randint(0, 5)))
    return chunk_of(text, path, line, context=context, moment_ms=rng.randrange(5) * HOUR_MS)


def chunk_of(text: str, path: str, line: int, *, context: str = "", moment_ms: int = 0) -> NewChunk:
    return NewChunk(line, line, "", text, text, text, context, moment_ms)


def write_file(index: Index, rng: random.Random, path: str, chunks: int) -> None:
    file = FileRow("memory", path, hashlib.sha256(rng.randbytes(8)).hexdigest(), 1, 1, 1, 1)
    index.live.replace_files([FileWrite(file, tuple(make_chunk(rng, path, line) for line in range(1, chunks + 1)))])


def phrase(index: Index, text: str, *, is_prefix: bool = False) -> CountedPhrase:
    looked_up = Phrase(text, is_prefix)
    return CountedPhrase(looked_up, index.words.phrase_frequency(looked_up, cap=10_000))


def random_phrases(index: Index, rng: random.Random) -> list[CountedPhrase]:
    texts = [" ".join(rng.sample(WORDS, rng.choice((1, 1, 1, 2)))) for _ in range(rng.randint(1, 4))]
    phrases = [phrase(index, text) for text in dict.fromkeys(texts)]
    if rng.random() < 0.5:
        phrases.append(phrase(index, rng.choice(WORDS)[:3], is_prefix=True))
    return [item for item in phrases if item.rows]


@pytest.fixture
def index(tmp_path):
    index = Index(str(tmp_path / "index.sqlite"))
    yield index
    index.close()


def assert_same(index: Index, rng: random.Random, filters: Filter, *, searches: int = 30) -> None:
    all_rows = [row for (row,) in index.db.execute("SELECT row FROM chunks")]
    with index.reading():
        compare_searches(index, rng, filters, all_rows, searches)


def compare_searches(index: Index, rng: random.Random, filters: Filter, all_rows: list[int], searches: int) -> None:
    for _ in range(searches):
        if not (phrases := random_phrases(index, rng)):
            continue
        budget = rng.choice((0, 50, 1000))
        by_sqlite = PhraseSearch(index.words, phrases, rows_budget=budget)
        in_memory = ListedPhraseSearch(index.words.lists, phrases, rows_budget=budget)
        limit = rng.choice((1, 5, 20, 1000))
        best = by_sqlite.find_best(limit, filters)
        assert sorted(in_memory.find_best(limit, filters)) == sorted(best), phrases
        others = [row for row in rng.sample(all_rows, 10) if row not in best]
        (expected, mean), (matches, other_mean) = by_sqlite.count(best, others), in_memory.count(best, others)
        assert sorted(matches, key=lambda match: match.row) == sorted(expected, key=lambda match: match.row)
        assert not expected or other_mean == mean


@pytest.mark.parametrize("filters", [Filter(), Filter(since_ms=2 * HOUR_MS), Filter(path="b")])
def test_lists_in_memory_find_and_count_the_same_as_sqlite(index, filters):
    rng = random.Random(7)
    with index.writing():
        for number in range(60):
            write_file(index, rng, f"{'ab'[number % 2]}/{number}.md", rng.randint(1, 6))
    assert_same(index, rng, filters)
    for _ in range(4):  # after each, lists and lengths are read again
        with index.writing():
            write_file(index, rng, f"a/{2 * rng.randrange(30)}.md", rng.randint(0, 6))
            index.live.remove_file("memory", f"b/{2 * rng.randrange(30) + 1}.md")
            index.live.optimise(changed_chunks=rng.choice((0, 10_000)))
        assert_same(index, rng, filters, searches=8)


def test_a_rebuild_begins_with_new_rows_and_new_lengths(index):
    rng = random.Random(8)
    with index.writing():
        write_file(index, rng, "old.md", 40)
    assert_same(index, rng, Filter(), searches=5)
    building = index.begin_generation()
    with index.writing():
        file = FileRow("memory", "new.md", "0", 1, 1, 1, 1)
        building.replace_files([FileWrite(file, tuple(make_chunk(rng, "new.md", line) for line in range(1, 30)))])
        index.switch_to(building)
    assert_same(index, rng, Filter(), searches=5)


def test_with_too_many_rows_those_with_a_rarer_phrase_are_ranked_by_all_phrases(index):
    texts = [*["linden pine pine"] * 4, "linden maple pine", *["maple pine pine"] * 30]
    file = FileRow("memory", "trees.md", "0", 1, 1, 1, 1)
    with index.writing():
        chunks = tuple(chunk_of(text, "trees.md", at) for at, text in enumerate(texts, 1))
        index.live.replace_files([FileWrite(file, chunks)])
    phrases = [phrase(index, "linden"), phrase(index, "maple")]
    search = ListedPhraseSearch(index.words.lists, phrases, rows_budget=10, listed_budget=10)
    assert search.find_best(1, Filter()) == [5]
    assert sorted(search.find_best(100, Filter())) == [1, 2, 3, 4, 5]
    matches, _ = search.count([5, 1], [6])
    assert {match.row: match.counts for match in matches} == {
        5: ((0, 1, 0), (1, 1, 0)),
        1: ((0, 1, 0),),
        6: ((1, 1, 0),),
    }


def test_lengths_of_any_size_are_read():
    def varint(number: int) -> bytes:
        groups = [number & 127]
        while number := number >> 7:
            groups.append(number & 127 | 128)
        return bytes(reversed(groups))

    sizes = [(0, 1), (127, 128), (300, 0), (16_383, 16_384), (5_000_000, 2)]
    assert decode_sizes([varint(text) + varint(context) for text, context in sizes]).tolist() == [*map(list, sizes)]


def test_a_frequency_is_counted_again_after_another_connection_has_changed_the_index(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory, open_memory(tmp_path) as other:
        memory.sync()
        with other.index_service.inspecting() as (reader, _), reader.reading():
            assert (reader.words.document_frequencies(["heron"]), reader.words.chunk_count()) == ({"heron": 1}, 1)
        write_note(tmp_path / "workspace", "memory/b.md", "Another heron.\n")
        memory.sync()
        with other.index_service.inspecting() as (again, _), again.reading():
            assert again is reader
            assert (reader.words.document_frequencies(["heron"]), reader.words.chunk_count()) == ({"heron": 2}, 2)


@pytest.mark.parametrize("force", [False, True])
def test_a_word_that_no_chunk_had_is_found_after_this_connection_has_written_one(tmp_path, force):
    write_note(tmp_path / "workspace", "memory/a.md", "The heron stands still.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        with memory.index_service.inspecting() as (index, _), index.reading():
            assert index.words.document_frequencies(["heron", "otter", "quail"]) == {"heron": 1}
        write_note(tmp_path / "workspace", "memory/b.md", "An otter swims.\n")
        memory.sync(force=force)
        with memory.index_service.inspecting() as (index, _), index.reading():
            assert index.words.document_frequencies(["heron", "otter", "quail"]) == {"heron": 1, "otter": 1}
