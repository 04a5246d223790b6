"""Joins two versions of a file: a text is merged, and of any other file the version of this machine becomes a copy."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Container

from kept.errors import GitSyncRefused
from kept.limits import printable_line
from kept.working_copy.note_merge import merge_text
from kept.working_copy.passage_merge import MergeHosts, Sides
from kept.working_copy.synced_files import SETTINGS_FILES, SyncedFiles
from kept.workspace.daily import get_daily_notes


class FileMerge:
    def __init__(self, files: SyncedFiles, *, our_host: str, today: dt.date) -> None:
        self._synced = files
        self._our_host = our_host
        self._today = today
        self._daily = get_daily_notes(files.workspace)

    def merge(self, path: str, sides: Sides, hosts: MergeHosts) -> tuple[bytes, bool] | None:
        """Return two versions of a file as one, and whether passages stand in two versions; None if it is no text."""
        is_settings = path.rpartition("/")[2] in SETTINGS_FILES
        if not is_settings and not self._synced.workspace.is_note_file(path):
            return None
        is_daily = self._daily.find_day(path) is not None
        merged = merge_text(sides, hosts, is_daily=is_daily, comments=not is_settings)
        return None if merged is None else (merged.data, bool(merged.conflicts))

    def copy_name(self, path: str, taken: Container[str] = ()) -> str:
        """Return the name of a conflict copy, as `workspace.conflict_copies` recognises it."""
        stem, ending = os.path.splitext(path)
        for number in range(1, 1_000):
            mark = f"{self._our_host}'s conflicted copy {self._today}{f' {number}' if number > 1 else ''}"
            name = f"{stem} ({mark}){ending}"
            if name not in taken and not os.path.lexists(self._synced.absolute(name)):
                return name
        raise GitSyncRefused(f"{printable_line(path)} has too many conflict copies.", hint="Delete some of them.")
