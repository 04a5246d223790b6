"""Searching in a process that stays up. Run by itself, so that its memory is its own: prints one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
import time

from benchmarks.corpus import SEED, Corpus
from kept import Memory

WARM_UP = 20
QUESTIONS = 200


def main(workspace: str, home: str) -> None:
    with Memory.open(workspace=workspace, home=home) as memory:
        cpu, wall = time.process_time(), time.perf_counter()
        report = memory.sync()
        index_cpu_s, index_wall_s = time.process_time() - cpu, time.perf_counter() - wall
        index_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        questions = Corpus(SEED).questions(WARM_UP + QUESTIONS)
        cpu_s, wall_s, hits = [], [], 0
        for number, question in enumerate(questions):
            cpu, wall = time.process_time(), time.perf_counter()
            found = memory.search(question)
            if number >= WARM_UP:
                cpu_s.append(time.process_time() - cpu)
                wall_s.append(time.perf_counter() - wall)
                hits += len(found)
    print(
        json.dumps(
            {
                "chunks": report.chunks,
                "index_cpu_s": index_cpu_s,
                "index_wall_s": index_wall_s,
                "index_peak_kb": index_peak,
                "cpu_s": sorted(cpu_s),
                "wall_s": sorted(wall_s),
                "hits": hits,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
