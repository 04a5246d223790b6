"""Measure searches in a long-running process that has not indexed anything itself, like a server. Print JSON."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.corpus import SEED, Corpus
from kept import Memory

WARM_UP = 20
QUESTIONS = 200


def main(workspace: str, home: str) -> None:
    questions = Corpus(SEED).questions(WARM_UP + QUESTIONS)
    cpu_s, wall_s = [], []
    with Memory.open(workspace=workspace, home=home) as memory:
        chunks = memory.status().chunks
        for number, question in enumerate(questions):
            cpu, wall = time.process_time(), time.perf_counter()
            memory.search(question)
            if number >= WARM_UP:
                cpu_s.append(time.process_time() - cpu)
                wall_s.append(time.perf_counter() - wall)
    print(json.dumps({"chunks": chunks, "cpu_s": sorted(cpu_s), "wall_s": sorted(wall_s)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
