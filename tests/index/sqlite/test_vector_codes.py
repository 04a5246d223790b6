"""Arithmetic on the codes that vectors are stored as."""

import importlib
import struct
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.index.sqlite import vectors

importlib.import_module("numpy")


@given(st.data())
def test_distances_are_the_same_with_and_without_numpy(data):
    dims = data.draw(st.sampled_from([8, 64, 256, 13]))
    code = st.binary(min_size=dims, max_size=dims)
    query, codes = data.draw(code), b"".join(data.draw(st.lists(code, max_size=5)))
    with_numpy = list(vectors.cosine_distances(query, codes))
    numpy = sys.modules.pop("numpy")
    try:
        assert list(vectors.cosine_distances(query, codes)) == with_numpy
    finally:
        sys.modules["numpy"] = numpy


@given(st.lists(st.floats(0, 2), max_size=50), st.integers(1, 10))
def test_the_smallest_distances_are_found_with_and_without_numpy(values, limit):
    distances = memoryview(array("d", values))
    expected = sorted(values)[:limit]
    with_numpy = vectors.smallest(distances, limit)
    numpy = sys.modules.pop("numpy")
    try:
        without = vectors.smallest(distances, limit)
    finally:
        sys.modules["numpy"] = numpy
    for found in (with_numpy, without):
        assert sorted(value for value, _ in found)[:limit] == expected
        assert all(values[at] == value for value, at in found)


def test_a_vector_of_nothing_is_near_to_nothing():
    measure = vectors.cosine_distances
    nothing, something = bytes(16), bytes([3] * 16)
    assert list(measure(nothing, nothing + something)) == [1.0, 1.0]
    assert list(measure(something, nothing)) == [1.0]
    assert list(measure(something, b"")) == []


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=64))
def test_a_code_points_where_its_vector_points(values):
    vector = struct.pack(f"<{len(values)}f", *values)
    code = array("b", vectors.quantise(vector))
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "numpy")
        assert vectors.quantise(vector) == code.tobytes()
    largest = max(map(abs, values))
    assert max(map(abs, code)) == (127 if largest else 0)
    for value, number in zip(values, code, strict=True):
        assert abs(number - (value / largest * 127 if largest else 0)) <= 0.51
