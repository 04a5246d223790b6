"""The signals of recorded queries, as a file: figures only, no text of any set.

`benchmarks/signals` holds those that the shipped confidence was learned from: `meaning.json.gz` and `words.json.gz`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.confidence_fit import Asked
from kept.search.scores import Signals

FOLDER = Path(__file__).parent / "signals"
_SIGNALS = tuple(field.name for field in fields(Signals))
_OTHERS = ("set", "kind", "is_right", "is_answered", "is_near")
_DIGITS = 4


def write_signals(path: Path, asked: Sequence[Asked]) -> None:
    rows = [
        [*(_short(getattr(query.signals, name)) for name in _SIGNALS), *(getattr(query, name) for name in _OTHERS)]
        for query in asked
    ]
    text = json.dumps({"columns": [*_SIGNALS, *_OTHERS], "rows": rows}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _short(figure: float | None) -> float | None:
    return round(figure, _DIGITS) if isinstance(figure, float) else figure


def read_signals_file(path: Path) -> list[Asked]:
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    rows = (dict(zip(recorded["columns"], row, strict=True)) for row in recorded["rows"])
    return [Asked(signals=Signals(**{name: row.pop(name) for name in _SIGNALS}), **row) for row in rows]
