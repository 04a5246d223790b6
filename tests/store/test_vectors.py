"""The packed scan against a plain float32 one, with everything that happens to packs."""

from __future__ import annotations

import importlib
import math
import random
import struct

import pytest

from kept.store.index import Index
from kept.store.vector_codes import quantise, sign_bits
from kept.store.vector_scan import VectorLimits

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


@pytest.fixture
def open_table(tmp_path):
    indexes = []

    def open_with(**limits):
        indexes.append(Index(str(tmp_path / "index.sqlite"), VectorLimits(pack_rows=300, pack_when=100, **limits)))
        return indexes[-1]

    yield open_with
    for index in indexes:
        index.close()


@pytest.fixture
def table(open_table):
    return open_table()


def fill(index: Index, count: int, rng: random.Random, first: int = 1) -> dict[int, list[float]]:
    centres = [unit(rng) for _ in range(20)]
    rows = {row: unit(rng, rng.choice(centres)) for row in range(first, first + count)}
    with index.writing():
        index.live.vectors.put((row, quantise(packed(v))) for row, v in rows.items())
        index.live.vectors.maintain()
    return rows


def recall(index: Index, rows: dict[int, list[float]], rng: random.Random, **options) -> float:
    correct = 0
    for _ in range(30):
        query = unit(rng, rng.choice(list(rows.values())))
        near = index.live.vectors.nearest(quantise(packed(query)), 10, **options)
        correct += len({row for row, _ in near} & set(reference(query, rows, 10)))
    return correct / 300


def test_the_int8_scan_finds_what_float32_finds(table):
    rng = random.Random(1)
    rows = fill(table, 1_050, rng)
    assert recall(table, rows, rng) >= 0.96


def test_sign_bits_then_int8_finds_nearly_the_same(open_table):
    table = open_table(bits_above=1_000, least_rescored=400)
    rng = random.Random(2)
    rows = fill(table, 3_000, rng)
    assert recall(table, rows, rng) >= 0.9


def test_the_cosine_is_that_of_the_vectors(table):
    rng = random.Random(3)
    rows = fill(table, 500, rng)
    query = unit(rng)
    for row, cosine in table.live.vectors.nearest(quantise(packed(query)), 20):
        assert cosine == pytest.approx(sum(a * b for a, b in zip(query, rows[row], strict=True)), abs=0.02)


def test_rows_that_are_gone_are_never_found(table):
    rng = random.Random(4)
    rows = fill(table, 1_050, rng)
    gone = rng.sample(sorted(rows), 400)
    with table.writing():
        table.live.vectors.remove(gone)
    for row in gone:
        del rows[row]
    near = table.live.vectors.nearest(quantise(packed(unit(rng))), 700)
    assert {row for row, _ in near} == set(rows)
    with table.writing():
        table.live.vectors.maintain()
    assert recall(table, rows, rng) >= 0.96


def test_a_pack_that_is_mostly_dead_is_dissolved(table):
    rng = random.Random(5)
    rows = fill(table, 900, rng)
    with table.writing():
        table.live.vectors.remove([row for row in rows if row <= 200])
        table.live.vectors.maintain()
    with table.reading():
        dead = table.db.execute("SELECT count(*) FROM vec_dead").get
        unpacked = table.db.execute("SELECT count(*) FROM chunks_vec WHERE pack IS NULL").get
    assert dead == 0
    assert unpacked <= 100
    assert {row for row, _ in table.live.vectors.nearest(quantise(packed(unit(rng))), 900)} == set(range(201, 901))


def test_rows_that_are_not_packed_yet_are_found(table):
    rng = random.Random(6)
    rows = fill(table, 600, rng)
    rows |= fill(table, 40, rng, first=5_000)
    assert table.db.execute("SELECT count(*) FROM chunks_vec WHERE pack IS NULL").get == 40
    assert recall(table, rows, rng) >= 0.96


@pytest.mark.parametrize("few", [5_000, 10])
def test_a_filter_limits_the_rows_whichever_way_it_is_applied(open_table, few):
    table = open_table(few_rows=few)
    rng = random.Random(7)
    rows = fill(table, 700, rng)
    among = {row: rows[row] for row in rng.sample(sorted(rows), 150)}
    assert recall(table, among, rng, among=list(among)) >= 0.96
    near = table.live.vectors.nearest(quantise(packed(unit(rng))), 700, among=list(among))
    assert {row for row, _ in near} == set(among)


def test_vectors_of_another_width_are_never_compared(table):
    rng = random.Random(8)
    fill(table, 300, rng)
    assert table.live.vectors.nearest(bytes(32), 10) == []


def test_a_sign_bit_stands_for_each_dimension():
    code = bytes([1, 255, 0, 127, 128, 5, 200, 9, 7])
    assert sign_bits(code) == bytes([0b10010101, 0b10000000])


def test_a_vector_of_zeros_has_a_code_of_zeros():
    assert quantise(packed([0.0] * DIMS)) == bytes(DIMS)


@pytest.mark.parametrize("bits_above", [100_000, 500])
def test_packs_in_memory_follow_the_table(open_table, bits_above):
    table = open_table(bits_above=bits_above, least_rescored=400)
    rng = random.Random(9)
    rows = fill(table, 600, rng)
    assert recall(table, rows, rng) >= 0.9
    rows |= fill(table, 600, rng, first=1_000)
    assert recall(table, rows, rng) >= 0.9
    with table.writing():
        table.live.vectors.remove([row for row in rows if row <= 250])
        table.live.vectors.maintain()
    rows = {row: vector for row, vector in rows.items() if row > 250}
    assert recall(table, rows, rng) >= 0.9


def test_similarities_after_a_search_are_those_of_the_stored_codes(table):
    importlib.import_module("numpy")  # as a process that keeps searching does
    rng = random.Random(21)
    rows = fill(table, 700, rng)
    query = quantise(packed(unit(rng)))
    wanted = [*rng.sample([*rows], 50), 5_000]
    read = table.live.vectors.similarities(query, wanted)
    table.live.vectors.nearest(query, 10, generation=1)
    with table.writing():
        table.db.execute("DELETE FROM chunks_vec WHERE pack IS NOT NULL")  # so that only memory has them
    in_memory = table.live.vectors.similarities(query, wanted, generation=1)
    assert in_memory == read
    assert len(table.live.vectors.similarities(query, wanted, generation=2)) < len(read)
    assert len(table.live.vectors.similarities(quantise(packed(unit(rng))), wanted, generation=1)) < len(read)
