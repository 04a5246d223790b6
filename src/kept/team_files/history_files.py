"""The history of the notes in the database: files that only grow, one set for each machine.

A machine appends to its own. A forget or a prune writes files anew: they get another epoch, and every machine takes
them as they are. What a machine appended and did not send before that is dropped from the history, never from a note:
the next sync of the index records what notes differ by.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from kept.errors import KeptError
from kept.history.history_folder import CHANGES, HISTORY_FOLDER, OBJECTS, HistoryFolder
from kept.team_files.copy_state import CopiedGrowth, CopyState
from kept.team_files.file_tables import GONE, FileTables, GrownRow, SentPiece
from kept.values import frozen
from kept.working_copy.synced_files import SyncedFiles

_NAMES = {CHANGES: re.compile(r"[0-9A-Za-z]{1,64}\.jsonl"), OBJECTS: re.compile(r"[0-9A-Za-z]{1,64}\.\d{1,9}\.pack")}


@frozen
class HistoryChange:
    sent: SentPiece
    after: CopiedGrowth


class HistoryFiles:
    """The files of one workspace's history. The caller holds the lock of the workspace while it writes."""

    def __init__(self, files: SyncedFiles, tables: FileTables, state: CopyState) -> None:
        self._files = files
        self._tables = tables
        self._state = state
        self._folder = HistoryFolder(files.workspace)

    # sending

    def find_changes(self) -> list[HistoryChange]:
        """Return what the files got since they were sent."""
        present = dict(self._iter_states())
        known = self._state.grown()
        changes = [change for path in sorted(present) for change in self._compare(path, present[path], known.get(path))]
        if any(path.startswith(f"{HISTORY_FOLDER}/{CHANGES}/") for path in present):
            # Rewriting the history removes packs. If all of it is gone, it is fetched again.
            changes += [
                HistoryChange(
                    SentPiece(path, copied.epoch, 0, b"", is_gone=True), CopiedGrowth(copied.epoch + 1, GONE, 0)
                )
                for path, copied in sorted(known.items())
                if path not in present and copied.size != GONE
            ]
        return changes

    def _iter_states(self) -> Iterable[tuple[str, os.stat_result]]:
        for folder, pattern in _NAMES.items():
            for name in self._folder.names(folder, ""):
                if pattern.fullmatch(name):
                    with self._folder.reading(folder, name) as handle:
                        if handle is not None:
                            yield f"{HISTORY_FOLDER}/{folder}/{name}", os.fstat(handle)

    def _compare(self, path: str, state: os.stat_result, copied: CopiedGrowth | None) -> list[HistoryChange]:
        if copied is not None and (copied.size, copied.inode) == (state.st_size, state.st_ino):
            return []
        folder, name = _split(path)
        is_grown = copied is not None and copied.inode == state.st_ino and state.st_size > copied.size >= 0
        start = copied.size if copied is not None and is_grown else 0
        data = self._folder.read(folder, name, start=start)
        epoch = 0 if copied is None else copied.epoch
        sent = SentPiece(path, epoch, start, data, is_whole=not is_grown and copied is not None)
        return [HistoryChange(sent, CopiedGrowth(sent.next_epoch, sent.next_size, state.st_ino))]

    # taking

    def take(self, rows: Sequence[GrownRow]) -> None:
        known = self._state.grown()
        for row in rows:
            copied = known.get(row.path)
            if copied is not None and (copied.epoch, copied.size) == (row.epoch, row.size):
                if row.size == GONE or self._inode(row.path) is not None:
                    continue
                copied = None  # removed here, together with the whole history
            try:
                self._take(row, copied)
            except KeptError as exc:
                self._files.report(row.path, f"not taken: {exc.message}")

    def _take(self, row: GrownRow, copied: CopiedGrowth | None) -> None:
        if not _is_history(row.path):
            self._files.report(row.path, "not taken: it is no file of a history")
            return
        folder, name = _split(row.path)
        if row.size == GONE:
            self._folder.remove(folder, name)
            self._state.put_grown(row.path, CopiedGrowth(row.epoch, GONE, 0))
            return
        is_grown = (
            copied is not None
            and copied.epoch == row.epoch
            and copied.inode == self._inode(row.path)
            and copied.size == self._folder.size(folder, name) < row.size
        )
        start = copied.size if copied is not None and is_grown else 0
        data = self._tables.read_pieces(row.path, row.epoch, start)
        if data is None:
            return  # changed meanwhile: the next list has it
        if is_grown:
            self._folder.append(folder, name, data)
        else:
            here = self._folder.read(folder, name)
            is_same_file = copied is None or copied.epoch == row.epoch
            if not (is_same_file and here.startswith(data)):  # otherwise what follows is sent next
                self._folder.replace(folder, name, data)
        self._state.put_grown(row.path, CopiedGrowth(row.epoch, start + len(data), self._inode(row.path) or 0))

    def _inode(self, path: str) -> int | None:
        with self._folder.reading(*_split(path)) as handle:
            return None if handle is None else os.fstat(handle).st_ino


def _is_history(path: str) -> bool:
    parts = path.split("/")
    pattern = _NAMES.get(parts[2]) if len(parts) == 4 and path.startswith(f"{HISTORY_FOLDER}/") else None
    return pattern is not None and pattern.fullmatch(parts[3]) is not None


def _split(path: str) -> tuple[str, str]:
    _, folder, name = path.rsplit("/", 2)
    return folder, name
