"""Share of time expressions that are read as people mean them, by the table that the tests use.

python -m benchmarks.times
"""

from __future__ import annotations

import time

from kept.search.date_reader import read_times
from tests.support.time_expressions import NOW, TIME_EXPRESSIONS


def main() -> None:
    wrong = []
    started = time.process_time()
    for expression, start, end in TIME_EXPRESSIONS:
        mentions = read_times(expression, NOW).mentions
        period = mentions[0].reading.periods[0] if len(mentions) == 1 else None
        if period is None or (period.start, period.end) != (start, end):
            wrong.append(expression)
    each_us = (time.process_time() - started) / len(TIME_EXPRESSIONS) * 1e6
    right = len(TIME_EXPRESSIONS) - len(wrong)
    print(f"{right} of {len(TIME_EXPRESSIONS)} expressions are read right ({right / len(TIME_EXPRESSIONS):.1%}),")
    print(f"{each_us:.0f} µs of CPU time each.")
    for expression in wrong:
        print(f"  wrong: {expression}")


if __name__ == "__main__":
    main()
