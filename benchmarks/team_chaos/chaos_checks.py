"""What three machines of a team have left: notes, answers, transcripts, and an index like a new one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.team_chaos.machine_worker import ACKNOWLEDGED, REPORT
from kept.postgres.database import Database
from kept.store.postgres.index import PostgresIndex
from kept.store.postgres.index_contents import FILE_COLUMNS, NOTE_COLUMNS, PostgresContents
from kept.store.postgres.posting_tables import POSITION_BITS

OUTAGE_CODES = {"store_unreachable", "store_busy", "store_unavailable", "lock_busy"}
_MARK = re.compile(r"<<(.*?)>>")
_UNCOMPARED = {"checked_ns", "mark"}
"""Columns of files that tell when and how far they were read, and not what is in the index."""
_FILE_PLACES = [at for at, column in enumerate(FILE_COLUMNS.split(", ")) if column not in _UNCOMPARED]


def lost_notes(folders: Iterable[Path], notes: Path) -> tuple[int, list[str]]:
    """Return how many lines were acknowledged, and those that are not in the notes exactly once."""
    texts = "\n".join(path.read_text() for path in notes.rglob("*.md"))
    counts = Counter(re.findall(r"mark[0-9a-f]{12}", texts))
    marks = [
        mark
        for folder in folders
        if (folder / ACKNOWLEDGED).exists()
        for mark in (folder / ACKNOWLEDGED).read_text().split()
    ]
    return len(marks), [f"{mark}: {counts[mark]} times" for mark in marks if counts[mark] != 1]


def read_reports(folders: Iterable[Path]) -> list[list[dict[str, Any]]]:
    """Return what each worker has recorded. A line that a kill has cut short is left out."""
    reports = []
    for folder in folders:
        lines = (folder / REPORT).read_text().splitlines() if (folder / REPORT).exists() else []
        reports.append([json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")])
    return reports


def outages(report: Iterable[dict[str, Any]]) -> list[float]:
    """Return how long each series of failures took, until something worked again."""
    lengths: list[float] = []
    since: float | None = None
    for line in report:
        if line["outcome"] in ("failed", "degraded"):
            since = line["at"] if since is None else since
        elif since is not None:
            lengths.append(line["until"] - since)
            since = None
    return lengths


def count_replies(homes: Iterable[Path]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return on how many machines each message has a reply, and how often it was written to or answered in a home."""
    machines: Counter[str] = Counter()
    inside: Counter[tuple[str, str]] = Counter()
    for home in homes:
        asked, answered = Counter[str](), Counter[str]()
        for path in home.glob("agents/*/sessions/**/*.jsonl"):
            for line in path.read_text().splitlines():
                metadata = (json.loads(line).get("message") or {}).get("metadata") or {}
                asked.update([metadata["inbound"]] if "inbound" in metadata else [])
                answered.update(metadata.get("answers", ()))
        machines.update(answered.keys())
        inside.update({(f"{home.parent.name}: asked", mark): count for mark, count in asked.items()})
        inside.update({(f"{home.parent.name}: answered", mark): count for mark, count in answered.items()})
    return machines, inside


def find_marks(text: str) -> list[str]:
    return _MARK.findall(text)


def index_tables(database: Database, workspace: str) -> dict[str, list[Any]]:
    """Return everything in an index but the numbers of rows, which depend on the order of indexing."""
    index = PostgresIndex(database, workspace)
    damage = index.find_damage()
    with index.reading():
        contents = PostgresContents(index)
        chunks = {row[0]: row[1:] for row in contents.chunks()}
        places = {row: values[:4] for row, values in chunks.items()}
        return {
            "damage": damage,
            "files": [tuple(row[at] for at in _FILE_PLACES) for row in contents.files()],
            "chunks": sorted(map(repr, chunks.values())),
            "vectors": sorted((places[row], code) for row, code in contents.vectors()),
            "words": sorted(
                (stem, places[row], is_context, position)
                for stem, entries in contents.entries()
                for row, is_context, position in map(_split_entry, entries.tolist())
            ),
            **{table: sorted(map(repr, contents.note_rows(table))) for table in NOTE_COLUMNS},
        }


def _split_entry(entry: int) -> tuple[int, int, int]:
    place = entry >> POSITION_BITS
    return place >> 1, place & 1, entry & ((1 << POSITION_BITS) - 1)


def differences(found: dict[str, list[Any]], fresh: dict[str, list[Any]]) -> list[str]:
    """Return what differs between two indexes, some of each table."""
    texts = [f"damage: {finding}" for finding in found["damage"]]
    for table, rows in found.items():
        expected = fresh[table]
        if rows != expected:
            surplus = Counter(map(repr, rows)) - Counter(map(repr, expected))
            missing = Counter(map(repr, expected)) - Counter(map(repr, rows))
            samples = [*(f"+{row[:300]}" for row in [*surplus][:3]), *(f"-{row[:300]}" for row in [*missing][:3])]
            texts.append(f"{table}: {surplus.total()} too many, {missing.total()} missing: {samples}")
    return texts
