"""Times of searches, syncs, and calls of models and tools, for a server that counts them.

Labels are flags, and names of tools and models. Never a text, a query or a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Labels = dict[str, str | bool]
Observe = Callable[[str, float, Labels], None]
"""Gets what was measured, the seconds that it took, and its labels."""

observers: list[Observe] = []
"""Called in the thread or task of the block that was measured."""


@contextmanager
def timed(name: str, **labels: str | bool) -> Iterator[Labels]:
    """Measure a block, which may add to its labels. ``failed`` is added if it raises an error."""
    started_s = time.perf_counter()
    try:
        yield labels
    except BaseException:
        labels["failed"] = True
        raise
    finally:
        for observe in observers:
            observe(name, time.perf_counter() - started_s, labels)
