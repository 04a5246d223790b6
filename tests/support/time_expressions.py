"""Time expressions with the interval that a person means, said on Wednesday, 18 November 2026, at 10:30.

A line of the file has the first moment of an interval, the first moment after it, and the expressions that mean it.
Weeks begin on Monday.
"""

import datetime as dt
from pathlib import Path

NOW = dt.datetime(2026, 11, 18, 10, 30)
_TABLE = Path(__file__).parent.parent / "search" / "time_expressions.txt"

TIME_EXPRESSIONS = [
    (expression, dt.datetime.fromisoformat(start.strip()), dt.datetime.fromisoformat(end.strip()))
    for start, end, expressions in (line.split(" | ") for line in _TABLE.read_text().splitlines())
    for expression in expressions.split("; ")
]
