"""Agreement of index and files: a signal that saves scans, and a check of hits for searches without a sync."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.errors import KeptError
from kept.records import Dropped, Hit
from kept.workspace.notes import read_passage
from kept.workspace.scan import ChangeSignal, Scan
from kept.workspace.workspace import Workspace

if TYPE_CHECKING:
    from kept.search.pipeline import IndexSearchResult

RESCAN_AFTER_S = 5.0
"""The kernel does not see every change (such as another machine's, on a network file system), so its signal is
trusted for a limited time."""


class Freshness:
    """Remembers that index and files agree until the kernel signals a change.

    The signal is set up by the second scan: a process that searches once should not pay for it. ``uses_signal`` is
    False for a caller that watches the folders itself.
    """

    def __init__(self, *, uses_signal: bool = True, endings: tuple[str, ...] = (".md",)) -> None:
        self._endings = endings
        self._uses_signal = uses_signal
        self._signal: ChangeSignal | None = None
        self._scanned_before = False
        self._scanned_at = 0.0
        self._in_step = False

    def is_fresh(self) -> bool:
        if not self._in_step or self._signal is None or not self._signal.available:
            return False
        if time.monotonic() - self._scanned_at > RESCAN_AFTER_S or self._signal.changed():
            self._in_step = False
        return self._in_step

    def scan(self, scan: Callable[[], Scan]) -> Scan:
        """Scan the files, and from the second time on watch their folders for changes."""
        if self._uses_signal and self._scanned_before and self._signal is None:
            self._signal = ChangeSignal(self._endings)
        self._scanned_before = True
        self._in_step = False  # until a sync has indexed what this scan sees
        if self._signal is not None:
            self._signal.changed()  # discard: the scan sees everything up to now
        self._scanned_at = time.monotonic()
        result = scan()
        while self._signal is not None and self._signal.watch(result.folders):
            result = scan()  # a folder that was not watched yet may have changed while it was read
        return result

    def mark_synced(self, *, fully: bool) -> None:
        self._in_step = fully

    def forget(self) -> None:
        self._in_step = False

    def close(self) -> None:
        if self._signal is not None:
            self._signal.close()
        self._signal = None
        self._in_step = False


def drop_outdated(
    result: IndexSearchResult, workspace: Workspace, sessions_folder: str, *, max_bytes: int
) -> IndexSearchResult:
    """Drop hits whose file is gone or has another text in these lines: for an index that may lag behind."""
    current: list[Hit] = []
    outdated: list[Dropped] = []
    for hit in result.hits:
        if _is_current(hit, workspace, sessions_folder, max_bytes):
            current.append(hit)
        else:
            outdated.append(Dropped(hit.citation, hit.score, "gone from disk"))
    if not outdated:
        return result
    reason = f"{len(outdated)} outdated {'hit was' if len(outdated) == 1 else 'hits were'} left out."
    return replace(
        result, hits=tuple(current), dropped=(*result.dropped, *outdated), degraded=(*result.degraded, reason)
    )


def _is_current(hit: Hit, workspace: Workspace, sessions_folder: str, max_bytes: int) -> bool:
    text = hit.snippet.strip("…").strip()
    try:
        if hit.source == "sessions":
            from kept.sessions.spoken import still_says

            return still_says(sessions_folder, hit.path, start=hit.start_line, end=hit.end_line, text=text)
        lines = hit.end_line - hit.start_line + 1
        passage = read_passage(workspace, hit.path, start=hit.start_line, lines=lines, max_bytes=max_bytes)
    except KeptError:
        return False
    return text in passage.text
