"""Reads the sets and the halves of their queries, and writes each half as a set of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kept.server.bench.sets import CORPUS, QRELS, QUERIES

FOLDER = Path(__file__).parent
SETS = ("person", "team")
HALVES = ("tune", "held")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def read_halves(name: str) -> dict[str, str]:
    """Return the half of each query, by id."""
    return {row["id"]: row["half"] for row in read_rows(FOLDER / name / QUERIES)}


def assign_halves(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the half that the rule gives to each query: the queries of a category alternate, in the file's order.

    A new query goes to the end of its category, so that no older one changes its half.
    """
    counts: dict[str, int] = {}
    halves = {}
    for row in rows:
        category = row["category"]
        halves[row["id"]] = HALVES[counts.get(category, 0) % 2]
        counts[category] = counts.get(category, 0) + 1
    return halves


def write_halves(target: Path) -> Iterator[Path]:
    """Write a set for each half, such as `person_tune`, for `kept bench`. Yield the folders."""
    for name in SETS:
        halves = read_halves(name)
        for half in HALVES:
            folder = target / f"{name}_{half}"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(FOLDER / name / CORPUS, folder / CORPUS)
            _copy_half(FOLDER / name, folder, halves, half)
            yield folder


def _copy_half(source: Path, target: Path, halves: Mapping[str, str], half: str) -> None:
    queries = [row for row in read_rows(source / QUERIES) if row["half"] == half]
    lines = [json.dumps(row, ensure_ascii=False) for row in queries]
    (target / QUERIES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    header, *judgements = (source / QRELS).read_text(encoding="utf-8").splitlines()
    kept = [line for line in judgements if halves[line.split("\t")[0]] == half]
    (target / QRELS).write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
