"""Measure searches in a long-running process that has not indexed anything itself, like a server.

    python -m benchmarks.warm --chunks 10000 100000 1000000 [--scratch FOLDER]

Print CPU time of a search at p50 and p95, the median of its parts, and the size of the index compared with the text.
Notes are generated and indexed in a temporary folder. A million chunks need 5 GB of disk and half an hour.

    python -m benchmarks.warm --sets xquad_th til_notes

Print the same for the questions of sets in the format of `kept bench`, such as one in a script without spaces.

    python -m benchmarks.warm --workspace W --home H [--questions FILE]

Print the same as JSON for a workspace that is indexed already. The file has a question in each line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from benchmarks.corpus import SEED, Corpus, write_notes
from kept import Memory
from kept.config import load_config
from kept.index.sqlite.generation import Generation
from kept.index.sqlite.vectors import VectorTable
from kept.index.sqlite.word_lists import ListedPhraseSearch
from kept.search import pipeline
from kept.search.candidates import KeywordSearch
from kept.search.reordering import ExactMatch
from kept.server.bench.sets import lay_out, read_set

WARM_UP = 20
QUESTIONS = 200
SECTIONS = 20
_TIMED = {
    "words": [
        *((KeywordSearch, name) for name in ("__init__", "score_rows")),
        (ListedPhraseSearch, "find_best"),
        (ExactMatch, "find_rows"),
    ],
    "vectors": [(VectorTable, "nearest"), (VectorTable, "similarities")],
    "texts": [(Generation, "get_chunks"), (Generation, "chunks_around")],
    "query vector": [(pipeline, "embed_query")],
}


class PartClock:
    """CPU time of the parts of a search, by name. A part that another part calls counts for the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._is_running = False

    def time(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            if self._is_running:
                return function(*args, **options)
            self._is_running, started = True, time.process_time()
            try:
                return function(*args, **options)
            finally:
                self._is_running = False
                self.seconds[part] = self.seconds.get(part, 0.0) + time.process_time() - started

        return timed

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Time the functions of `_TIMED` inside the block."""
        originals = [
            (part, owner, name, getattr(owner, name)) for part, names in _TIMED.items() for owner, name in names
        ]
        for part, owner, name, function in originals:
            setattr(owner, name, self.time(part, function))
        try:
            yield
        finally:
            for _, owner, name, function in originals:
                setattr(owner, name, function)


def measure(workspace: str, home: str, questions: list[str]) -> dict[str, Any]:
    """Search an indexed workspace. Return sorted times in seconds, the median of each part, and sizes in bytes."""
    with Memory.open(workspace=workspace, home=home) as memory:
        for question in questions[:WARM_UP]:
            memory.search(question)
        cpu_s, wall_s = [], []
        for question in questions[WARM_UP:]:
            cpu, wall = time.process_time(), time.perf_counter()
            memory.search(question)
            cpu_s.append(time.process_time() - cpu)
            wall_s.append(time.perf_counter() - wall)
        figures = {
            "chunks": memory.status().chunks,
            "cpu_s": sorted(cpu_s),
            "wall_s": sorted(wall_s),
            "parts_s": _measure_parts(memory, questions[WARM_UP:]),
        }
    return {**figures, **_measure_size(workspace, home)}


def _measure_parts(memory: Memory, questions: list[str]) -> dict[str, float]:
    clock = PartClock()
    each: dict[str, list[float]] = {part: [] for part in (*_TIMED, "rest")}
    with clock.patched():
        for question in questions:
            clock.seconds.clear()
            started = time.process_time()
            memory.search(question)
            clock.seconds["rest"] = time.process_time() - started - sum(clock.seconds.values())
            for part, values in each.items():
                values.append(clock.seconds.get(part, 0.0))
    return {part: _percentile(sorted(values), 50) for part, values in each.items()}


def _measure_size(workspace: str, home: str) -> dict[str, int]:
    agent = os.path.join(home, "agents", "main")
    places = ((workspace, ".md"), (os.path.join(agent, "sessions"), ".jsonl"))
    text = sum(
        os.path.getsize(os.path.join(folder, name))
        for place, ending in places
        for folder, _, names in os.walk(place)
        for name in names
        if name.endswith(ending)
    )
    return {"text_bytes": text, "index_bytes": os.path.getsize(os.path.join(agent, "index.sqlite"))}


def _percentile(values: list[float], share: int) -> float:
    return values[len(values) * share // 100]


def build_and_measure(chunks: int, scratch: str) -> str:
    """Return the line of a table for a workspace of about this many chunks."""
    folder = os.path.join(scratch, str(chunks))
    workspace, home = os.path.join(folder, "workspace"), os.path.join(folder, "home")
    os.makedirs(workspace, exist_ok=True)
    if not os.path.exists(home):
        sections = min(SECTIONS, max(1, chunks // 1_000))
        write_notes(workspace, notes=chunks // sections, sections=sections)
        with Memory.open(workspace=workspace, home=home) as memory:
            memory.sync()
    return _measure_apart(workspace, home)


def lay_out_and_measure(folder: str, scratch: str) -> str:
    """Return the line of a table for the first group of a set."""
    bench = read_set(folder)
    config = load_config(home=os.path.join(scratch, "home"), environ={}).config
    name, group = next(iter(lay_out(bench, config, os.path.join(scratch, bench.name)).items()))
    with Memory(group.config) as memory:
        memory.sync()
    questions = os.path.join(scratch, f"{bench.name}.txt")
    asked = [query.text.replace("\n", " ") for query in bench.queries if query.group == name]
    with open(questions, "w", encoding="utf-8") as file:
        file.write("\n".join(asked))
    return f"| {bench.name} {_measure_apart(group.config.workspace, group.config.home, '--questions', questions)}"


def _measure_apart(workspace: str, home: str, *options: str) -> str:
    """Return the line of a table, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.warm", "--workspace", workspace, "--home", home, *options]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    times = (_percentile(figures["cpu_s"], share) for share in (50, 95))
    cells = [f"{figures['chunks']:,}", *(f"{seconds * 1000:.1f}" for seconds in (*times, *figures["parts_s"].values()))]
    return f"| {' | '.join(cells)} | {figures['index_bytes'] / figures['text_bytes']:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm", description="Measure searches of a server.")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 100_000], help="sizes to build and measure")
    parser.add_argument("--sets", nargs="+", help="sets to measure instead")
    parser.add_argument("--scratch", help="folder for the notes and indexes; what is built there is used again")
    parser.add_argument("--workspace", help="measure this workspace, and print JSON")
    parser.add_argument("--home", help="home in which the workspace is indexed")
    parser.add_argument("--questions", help="file with the questions to ask there")
    chosen = parser.parse_args()
    if chosen.workspace:
        print(json.dumps(measure(chosen.workspace, chosen.home, _read_questions(chosen.questions))))
        return
    names = ["chunks", "p50 ms", "p95 ms", *_TIMED, "rest", "index / text"]
    names = ["set", *names] if chosen.sets else names
    print(f"| {' | '.join(names)} |\n|{'--:|' * len(names)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kept-warm-") as temporary:
        for folder in chosen.sets or ():
            print(lay_out_and_measure(folder, temporary), flush=True)
        for chunks in () if chosen.sets else chosen.chunks:
            print(build_and_measure(chunks, chosen.scratch or temporary), flush=True)


def _read_questions(path: str | None) -> list[str]:
    count = WARM_UP + QUESTIONS
    if path is None:
        return Corpus(SEED).questions(count)
    with open(path, encoding="utf-8") as file:
        questions = file.read().splitlines()
    return [questions[number % len(questions)] for number in range(count)]


if __name__ == "__main__":
    main()
