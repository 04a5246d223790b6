"""The build of the built-in model. Its table has a checksum, so only the form of the file is tested."""

import sys

import numpy as np
import pytest

from kept.embedding.static import PieceTable
from tests.support.repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from build_model.piece_vectors import Pieces
from build_model.table_file import write_table


def test_the_product_reads_the_file_that_the_build_writes(tmp_path):
    draw = np.random.default_rng(7)
    texts = ["", "▁cat", "▁dog", "แมว"]
    english, shared = draw.standard_normal((4, 8)), draw.standard_normal((4, 16)) / 100
    english[3] = 0
    write_table(str(tmp_path / "small.table"), Pieces(texts, [0.0, -3.0, -4.0, -5.5], english, shared))
    table = PieceTable(str(tmp_path / "small.table"))
    assert (table.rows, table.english_dims, table.shared_dims) == (4, 8, 16)
    assert table.pieces() == {"▁cat": 1, "▁dog": 2, "แมว": 3}
    assert table.scores[3] == -5.5
    for rows in ([1], [2, 3, 3]):
        first, second = table.sum_rows(rows)
        assert first == pytest.approx(english[rows].sum(axis=0), abs=0.2)
        assert second == pytest.approx(shared[rows].sum(axis=0), abs=0.002)
        assert table.sum_many([rows]) == [(first, second)]
