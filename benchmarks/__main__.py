"""Print the speed figures of Kept: python -m benchmarks [--quick] [--only NAME]"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.cases import CASES, Case, Place, Row

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    chosen = arguments()
    cases = [case for case in CASES if case.name == chosen.only] if chosen.only else list(CASES)
    if chosen.quick:
        cases = [case for case in cases if not case.slow]
    with tempfile.TemporaryDirectory(prefix="kept-bench-") as scratch:
        rows = run(cases, Place(scratch, say))
    text = f"{machine()}\n\n{table(rows)}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "speed.md").write_text(f"# Speed\n\n{text}", encoding="utf-8")
    shape = {"machine": machine(), "rows": [{**asdict(row), "ok": row.ok} for row in rows]}
    (RESULTS / "speed.json").write_text(json.dumps(shape, indent=2) + "\n", encoding="utf-8")
    print(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the speed of Kept.")
    parser.add_argument("--quick", action="store_true", help="skip cases that take minutes")
    parser.add_argument("--only", metavar="NAME", choices=[case.name for case in CASES], help="run one case")
    return parser.parse_args()


def run(cases: list[Case], place: Place) -> list[Row]:
    rows: list[Row] = []
    for number, case in enumerate(cases, start=1):
        say(f"[{number}/{len(cases)}] {case.name}")
        for row in case.run(place):
            say(f"    {row.what}: {seconds(row.cost.cpu_s)} CPU {verdict(row)}")
            rows.append(row)
    return rows


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}."


def table(rows: list[Row]) -> str:
    lines = ["| operation | CPU | wall | peak MB | target | |", "|---|--:|--:|--:|--:|---|"]
    for row in rows:
        cost = row.cost
        cells = (row.what, seconds(cost.cpu_s), seconds(cost.wall_s), f"{cost.peak_mb:.0f}", target(row), verdict(row))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def target(row: Row) -> str:
    limits = []
    if row.target.cpu_s is not None:
        limits.append(f"≤ {seconds(row.target.cpu_s)}")
    if row.target.peak_mb is not None:
        limits.append(f"≤ {row.target.peak_mb:.0f} MB")
    return ", ".join(limits)


def verdict(row: Row) -> str:
    return "" if row.ok is None else "ok" if row.ok else "over"


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


if __name__ == "__main__":
    main()
