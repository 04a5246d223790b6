"""Tell whether two versions of the code find the same: record the hits of one, then those of the other, and compare.

    python -m benchmarks.same_hits lay-out FOLDER SET… [--queries N]
    python -m benchmarks.same_hits record FOLDER RECORD
    python -m benchmarks.same_hits compare OLD_RECORD NEW_RECORD

`lay-out` writes sets in the format of `kept bench` to a folder, and lists their questions. A workspace that
`benchmarks.warm --scratch` generated is also a set. `record` searches for every question, with a clock that stands
still. A record has a line for each search: citation, score, grade, parts and snippet of each hit, and what was dropped.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy  # noqa: F401 (as in a process that keeps searching)

from benchmarks.corpus import SEED, Corpus
from kept.base.records import Hit, SearchResult
from kept.config import load_config
from kept.memory import Memory
from kept.server.bench.sets import lay_out, read_set, sample
from kept.testing import FrozenClock

NOW = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
_GENERATED_QUESTIONS = 500
_QUESTIONS = "questions.jsonl"
_MAX_SHOWN = 10


# the sets


def lay_out_set(folder: str, place: str, queries: int | None) -> Iterator[dict[str, Any]]:
    """Yield workspace, home and questions of each group of a set, which is written below ``place``."""
    if os.path.isdir(os.path.join(folder, "home")):
        asked = Corpus(SEED).questions(queries or _GENERATED_QUESTIONS)
        yield _group(os.path.join(folder, "workspace"), os.path.join(folder, "home"), asked)
        return
    bench = read_set(folder)
    config = load_config(home=os.path.join(place, "home"), environ={}).config
    asked_of_set = sample(bench.queries, queries)
    for name, group in lay_out(bench, config, os.path.join(place, bench.name)).items():
        asked = [query.text for query in asked_of_set if query.group == name]
        yield _group(group.config.workspace, group.config.home, asked)


def _group(workspace: str, home: str, questions: list[str]) -> dict[str, Any]:
    return {"workspace": workspace, "home": home, "questions": questions}


# recording


def record_group(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with Memory.open(group["workspace"], home=group["home"], clock=FrozenClock(NOW)) as memory:
        for question in group["questions"]:
            result = memory.search(question)
            yield {"workspace": group["workspace"], "query": question, **_describe(result)}


def _describe(result: SearchResult) -> dict[str, Any]:
    return {
        "hits": [_describe_hit(hit) for hit in result.hits],
        "degraded": result.degraded,
        "dropped": sorted((dropped.citation, round(dropped.score, 9), dropped.reason) for dropped in result.dropped),
    }


def _describe_hit(hit: Hit) -> dict[str, Any]:
    return {
        "citation": hit.citation,
        "score": round(hit.score, 9),
        "grade": hit.grade,
        "parts": [(part.name, round(part.value, 9), part.detail) for part in hit.parts],
        "snippet": hit.snippet,
        "also_in": [occurrence.path for occurrence in hit.also_in],
        "newer_than": [occurrence.path for occurrence in hit.newer_than],
        "further": [_describe_hit(passage) for passage in hit.further],
    }


# comparing


def compare(old_record: str, new_record: str) -> tuple[int, dict[str, list[str]]]:
    """Return the number of searches, and the queries of those that differ, by what differs first."""
    different: dict[str, list[str]] = {}
    searches = 0
    with open(old_record, encoding="utf-8") as old_file, open(new_record, encoding="utf-8") as new_file:
        for old_line, new_line in zip_longest(old_file, new_file, fillvalue="{}"):
            searches += 1
            if old_line != new_line:
                old, new = json.loads(old_line), json.loads(new_line)
                different.setdefault(_first_difference(old, new), []).append(old.get("query") or new.get("query"))
    return searches, different


def _first_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    if old.get("query") != new.get("query"):
        return "questions"
    for name in ("citation", "grade", "score", "parts", "snippet"):
        if [hit[name] for hit in old["hits"]] != [hit[name] for hit in new["hits"]]:
            return name
    return next((name for name in old if old[name] != new[name]), "nothing")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_hits", description="Compare the hits of versions.")
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("lay-out", help="write sets and list their questions")
    writing.add_argument("folder")
    writing.add_argument("sets", nargs="+")
    writing.add_argument("--queries", type=int, help="most questions of a set")
    recording = commands.add_parser("record", help="search for every question")
    recording.add_argument("folder")
    recording.add_argument("record")
    comparing = commands.add_parser("compare", help="compare two records")
    comparing.add_argument("old")
    comparing.add_argument("new")
    chosen = parser.parse_args()
    if chosen.command == "compare":
        searches, different = compare(chosen.old, chosen.new)
        count = sum(map(len, different.values()))
        print(f"{searches - count:,} of {searches:,} searches are the same.")
        for name, queries in different.items():
            print(f"{name}: {len(queries)}", *queries[:_MAX_SHOWN], sep="\n  ")
        raise SystemExit(bool(count))
    questions = os.path.join(chosen.folder, _QUESTIONS)
    if chosen.command == "lay-out":
        groups = (group for name in chosen.sets for group in lay_out_set(name, chosen.folder, chosen.queries))
        os.makedirs(chosen.folder, exist_ok=True)
        with open(questions, "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(group)}\n" for group in groups)
        return
    with open(questions, encoding="utf-8") as listed, open(chosen.record, "w", encoding="utf-8") as file:
        for line in listed:
            file.writelines(f"{json.dumps(search)}\n" for search in record_group(json.loads(line)))


if __name__ == "__main__":
    main()
