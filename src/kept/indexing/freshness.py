"""Whether the notes have to be looked at again before a search."""

from __future__ import annotations

import time
from collections.abc import Callable

from kept.workspace.scan import Scan
from kept.workspace.watch import ChangeSignal

LOOK_AGAIN_S = 5.0
"""The kernel does not see every change (another machine's, on a network file system), so it is not trusted for long."""


class Freshness:
    """Remembers that index and notes agree, until the kernel says that something changed.

    The signal is set up by the second look: a process that searches once should not pay for it. Whoever watches the
    folders already wants none (``signals``).
    """

    def __init__(self, *, signals: bool = True) -> None:
        self._signals = signals
        self._signal: ChangeSignal | None = None
        self._looked_before = False
        self._looked_at = 0.0
        self._in_step = False

    def is_fresh(self) -> bool:
        if not self._in_step or self._signal is None or not self._signal.available:
            return False
        if time.monotonic() - self._looked_at > LOOK_AGAIN_S or self._signal.changed():
            self._in_step = False
        return self._in_step

    def look(self, scan: Callable[[], Scan]) -> Scan:
        if self._signals and self._looked_before and self._signal is None:
            self._signal = ChangeSignal()
        self._looked_before = True
        self._in_step = False  # until a sync has taken in what this look sees
        if self._signal is not None:
            self._signal.changed()  # what happened until now, the scan will see
        self._looked_at = time.monotonic()
        found = scan()
        while self._signal is not None and self._signal.watch(found.folders):
            found = scan()  # a folder that was not watched may have changed while it was being read
        return found

    def synced(self, *, fully: bool) -> None:
        self._in_step = fully

    def forget(self) -> None:
        self._in_step = False

    def close(self) -> None:
        if self._signal is not None:
            self._signal.close()
        self._signal = None
        self._in_step = False
