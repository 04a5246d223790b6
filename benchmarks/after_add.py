"""Measure a search right after `add`, compared with a search while nothing changes: python -m benchmarks.after_add

One process with a warm memory adds a note and searches, again and again, as an agent does. The index should look at the
one file that changed, so such a search should cost little more than one that finds the index up to date. Prints the
median CPU time of both, and their quotient. ``--profile`` prints where the time of the searches after `add` goes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

from benchmarks.corpus import SEED, Corpus, write_notes
from kept import Memory

WARM_UP = 25
"""Searches after which a process has imported numpy and watches the folders."""
ROUNDS = 40


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.after_add", description=__doc__.split("\n")[0])
    parser.add_argument("--notes", type=int, default=3_000)
    parser.add_argument("--profile", action="store_true", help="print where the time of searches after `add` goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-after-add-") as scratch:
        workspace = os.path.join(scratch, "notes")
        write_notes(workspace, notes=options.notes)
        with Memory.open(workspace, home=os.path.join(scratch, "home")) as memory:
            quiet, after_add, adding = measure(memory, cProfile.Profile() if options.profile else None)
    print(f"{options.notes:,} notes, medians of {ROUNDS} rounds, ms of CPU time")
    print(f"quiet search:       {quiet * 1000:7.2f}")
    print(f"search after add:   {after_add * 1000:7.2f}")
    print(f"add:                {adding * 1000:7.2f}")
    print(f"after add / quiet:  {after_add / quiet:7.2f}")


def measure(memory: Memory, profile: cProfile.Profile | None) -> tuple[float, float, float]:
    """Return the CPU time of a quiet search, of one right after `add`, and of `add`."""
    questions = Corpus(SEED).questions(WARM_UP + 2 * ROUNDS)
    for question in questions[:WARM_UP]:
        memory.search(question)
    quiet: list[float] = []
    after_add: list[float] = []
    adding: list[float] = []
    for number, (first, second) in enumerate(zip(questions[WARM_UP::2], questions[WARM_UP + 1 :: 2], strict=True)):
        adding.append(cpu_time(partial(memory.add, f"The lamp number {number} hangs in the hall.")))
        if profile:
            profile.enable()
        after_add.append(cpu_time(partial(memory.search, first)))
        if profile:
            profile.disable()
        quiet.append(cpu_time(partial(memory.search, second)))
    if profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(70)
    return statistics.median(quiet), statistics.median(after_add), statistics.median(adding)


def cpu_time(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


if __name__ == "__main__":
    main()
