"""Run it: python -m benchmarks.team_chaos [--minutes 10] [--seed 18] [--asynchronous]

Three machines with homes and clocks of their own share a folder of notes, an index and an inbox on one PostgreSQL,
which has a standby. Each writes notes, searches, keeps the index current and answers messages with a model on loopback.
Processes are killed or stopped for a while, connections are ended, the server is restarted, and the standby promoted.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.team_chaos.chaos_run import ChaosRun


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.team_chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="duration (default: 10)")
    parser.add_argument("--seed", type=int, default=18, help="seed of what fails (default: 18)")
    parser.add_argument("--every", type=float, default=6.0, help="seconds between two faults (default: 6)")
    parser.add_argument("--failovers", type=int, default=2, help="how often the standby is promoted (default: 2)")
    parser.add_argument("--asynchronous", action="store_true", help="let a failover lose the last commits")
    parser.add_argument("--keep", action="store_true", help="keep the files")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kept-chaos-"))
    run = ChaosRun(folder, seed=options.seed, synchronous=not options.asynchronous, say=_say)
    try:
        result = run.run(options.minutes * 60, event_every_s=options.every, pause_s=2.0, failovers=options.failovers)
    finally:
        run.close()
        if not options.keep:
            shutil.rmtree(folder)
    for label, figure in result["figures"].items():
        print(f"{label:40} {figure}")
    for label, found in result["problems"].items():
        print(f"WRONG: {label}: {found if isinstance(found, int) else len(found)}")
        for line in found[:5] if isinstance(found, list) else ():
            print(f"    {line}")
    print(
        "Nothing is lost, nothing is twice, and the index is as new."
        if not result["problems"]
        else "Not as it should be."
    )
    sys.exit(bool(result["problems"]))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
