"""The scan of codes in memory against a plain float32 one, and after changes of the index."""

import math
import random
import struct

import pytest

from kept.base.records import Filter
from kept.index.sqlite import vectors
from kept.index.sqlite.index import Index
from kept.index.sqlite.rows import FileRow, FileWrite, NewChunk, text_hash
from kept.index.sqlite.vectors import quantise

DIMS = 64


def unit(rng: random.Random, centre: list[float] | None = None) -> list[float]:
    row = [rng.gauss(c, 0.1) for c in centre] if centre else [rng.gauss(0, 1) for _ in range(DIMS)]
    norm = math.sqrt(sum(v * v for v in row))
    return [v / norm for v in row]


def packed(row: list[float]) -> bytes:
    return struct.pack(f"<{DIMS}f", *row)


def reference(query: list[float], rows: dict[int, list[float]], limit: int) -> list[int]:
    """Exact cosine over float32: what everything else is measured against."""
    scored = sorted(((-sum(a * b for a, b in zip(query, v, strict=True)), row) for row, v in rows.items()))
    return [row for _, row in scored[:limit]]


def fill(index: Index, count: int, rng: random.Random) -> dict[int, list[float]]:
    """Add chunks, each in a file of its own, and return their vectors by row."""
    centres = [unit(rng) for _ in range(20)]
    known = set(index.live.rows_matching(Filter()))
    texts = [f"v{number}" for number in range(len(known), len(known) + count)]
    vectors = {text: unit(rng, rng.choice(centres)) for text in texts}
    codes = {text_hash(text): quantise(packed(vector)) for text, vector in vectors.items()}
    with index.writing():
        for text in texts:
            index.live.replace_files([_file_of(text)], codes.get)
        index.live.optimise(changed_chunks=0)
    added = index.live.get_chunks(set(index.live.rows_matching(Filter())) - known)
    return {row: vectors[chunk.text] for row, chunk in added.items()}


def _file_of(text: str) -> FileWrite:
    chunk = NewChunk(1, 1, "", text, text, text, "", 0)
    return FileWrite(FileRow("memory", f"{text}.md", text_hash(text).hex(), 1, 1, 1, 1), (chunk,))


def remove(index: Index, rows: list[int]) -> None:
    """Remove the files of chunks."""
    for chunk in index.live.get_chunks(rows).values():
        index.live.remove_file("memory", chunk.path)


def recall(index: Index, rows: dict[int, list[float]], rng: random.Random, **options) -> float:
    correct = 0
    for _ in range(30):
        query = unit(rng, rng.choice(list(rows.values())))
        near = index.live.vectors.nearest(quantise(packed(query)), 10, **options)
        correct += len({row for row, _ in near} & set(reference(query, rows, 10)))
    return correct / 300


@pytest.mark.parametrize("few", [5_000, 10])
def test_a_filter_limits_the_rows_whichever_way_it_is_applied(index, few, monkeypatch):
    monkeypatch.setattr(vectors, "_FEW_ROWS", few)
    rng = random.Random(7)
    rows = fill(index, 700, rng)
    among = {row: rows[row] for row in rng.sample(sorted(rows), 150)}
    assert recall(index, among, rng, among=list(among)) >= 0.96
    near = index.live.vectors.nearest(quantise(packed(unit(rng))), 700, among=list(among))
    assert {row for row, _ in near} == set(among)


def test_vectors_of_another_width_are_never_compared(index):
    rng = random.Random(8)
    fill(index, 300, rng)
    assert index.live.vectors.nearest(bytes(32), 10) == []


def test_codes_in_memory_follow_the_table(index):
    rng = random.Random(9)
    rows = fill(index, 600, rng)
    assert recall(index, rows, rng) >= 0.96
    rows |= fill(index, 600, rng)
    assert recall(index, rows, rng) >= 0.96
    gone = sorted(rows)[:550]
    with index.writing():
        remove(index, gone)
    rows = {row: vector for row, vector in rows.items() if row not in gone}
    assert recall(index, rows, rng) >= 0.96
