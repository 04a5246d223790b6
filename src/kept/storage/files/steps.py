"""Steps of a commit, and the journal that holds them while several are under way.

A change becomes a step when all that it depends on is known: the bytes to write, the version that they replace, the
offset to append at. So a step can be done again after a crash, and changes nothing the second time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Literal

from kept.base.durable import append_in, erase_in, replace_erasing_in, replacing_in, sync_folder
from kept.base.limits import printable_line
from kept.base.values import frozen
from kept.errors import PathRefused, StorageConflict, WorkspaceError, WriteFailed, WriteUnfinished
from kept.storage.contract import ABSENT, OWN_FOLDER, check_name, version_of
from kept.storage.files.folders import opened_file, opened_folder, read_file

JOURNAL = f"{OWN_FOLDER}/journal"
DISPLACED = ".kept/displaced"
"""Folder of documents, so that what they have can be read, and forgotten."""
REWRITTEN = b'{"rewritten": '
"""Beginning of the first line of a log that was rewritten: the position of its next line."""


_OWN_DOCUMENT = rf"{re.escape(OWN_FOLDER)}/generations/[0-9a-f]{{32}}"
"""Name of a document of the storage itself that a commit may write."""
_SPARE_BYTES = 1 << 20
_FEW = 16
"""Writes up to which the folder of each is synced. For more, the disk is synced once, before the journal goes."""


@frozen
class Step:
    kind: Literal["write", "append", "blank", "rewrite", "move", "remove", "erase"]
    path: str
    data: bytes = b""
    """Bytes to write; for a rewritten log, all that the file has afterwards."""
    before: str = ABSENT
    """Version that a document had."""
    to: str = ""
    offset: int = 0
    """Place in the file where a line is appended or blanked."""
    end: int = 0
    """End of a log after an append or a rewrite, as a position."""
    erase: bool = False
    modified_ns: int = 0


def decode_journal(raw: bytes) -> list[Step]:
    """Return the steps of a journal, none if it is torn: then none of them was begun. Neither does one that is not
    Kept's have any: whoever shares a folder must not reach beyond it."""
    digest, _, body = raw.partition(b"\n")
    if version_of(body).encode() != digest:
        return []
    line, _, rest = body.partition(b"\n")
    steps = []
    try:
        for head in json.loads(line):
            size = head.pop("data")
            steps.append(Step(**head, data=rest[:size]))
            rest = rest[size:]
        for name in (name for step in steps for name in (step.path, step.to) if name):
            if not re.fullmatch(_OWN_DOCUMENT, name):
                check_name(name)
    except (ValueError, TypeError, KeyError, AttributeError, PathRefused):
        return []
    return steps


@frozen
class Steps:
    """Does steps in a root folder. The caller holds the lock of the storage."""

    root: str
    syncs_each: bool = True

    def run(self, steps: Sequence[Step]) -> None:
        """Do all steps or none."""
        # Alone, most steps are done whole or not at all even without a journal. But a line can be blanked in part, and
        # several lines can be torn between two of them.
        step = steps[0]
        if len(steps) == 1 and step.kind != "blank" and (step.kind != "append" or step.data.count(b"\n") == 1):
            self._do(step)
            return
        # A line with the hash of the rest, one with the steps, and after it the bytes of all of them.
        heads = [{**asdict(step), "data": len(step.data)} for step in steps]
        body = json.dumps(heads).encode() + b"\n" + b"".join(step.data for step in steps)
        journal = version_of(body).encode() + b"\n" + body
        state = os.statvfs(self.root)
        if state.f_bavail * state.f_frsize < 2 * len(journal) + _SPARE_BYTES:  # then nothing is begun
            raise WriteFailed(f"{self.root}: could not be written (No space left on device).")
        # Not by a temporary file, which would stay, with the texts in it, if the process were killed before the rename.
        with self._writing(JOURNAL) as (folder, name):
            append_in(folder, name, journal)
        done: list[Step] = []
        doing = Steps(self.root, syncs_each=len(steps) <= _FEW)
        try:
            for step in steps:
                doing._do(step, is_journaled=True)
                done.append(step)
        except WorkspaceError as exc:  # also for a link that somebody has just put there
            if self._take_back(done):
                raise
            raise WriteUnfinished(exc.message) from exc
        if not doing.syncs_each:  # before the journal goes, which is all that could finish them
            os.sync()
        self._remove(JOURNAL)

    def _take_back(self, steps: Sequence[Step]) -> bool:
        """Take back steps that only added something, and drop the journal. Return False if that is not possible."""
        if not all(step.kind == "append" or (step.kind == "write" and step.before == ABSENT) for step in steps):
            return False
        try:
            for step in reversed(steps):
                if step.kind == "append":
                    self._cut(step.path, step.offset)
                else:
                    self._remove(step.path)
            self._remove(JOURNAL)
        except (OSError, WriteFailed):
            return False
        return True

    def finish(self) -> None:
        """Do what a process that was killed did not do any more."""
        try:
            if os.path.islink(os.path.join(self.root, JOURNAL)):
                self._remove(JOURNAL)
            raw = read_file(self.root, JOURNAL)[0]
        except PathRefused:  # a link in the place of the folder: there is no journal of ours
            return
        if raw is None:
            return
        for step in decode_journal(raw):  # in the same order, because a later one may need what an earlier one made
            try:
                # A write is not asked about: it compares versions itself, and changes nothing the second time.
                if not self._is_done(step):
                    self._do(step, is_journaled=True, is_late=True)
            except PathRefused:  # a link was put there since: it must not make everything else unreadable
                self.displace(step.data)
        os.sync()  # a step that looks done may not be on disk yet
        self._remove(JOURNAL)

    def _is_done(self, step: Step) -> bool:
        """Return whether a step was done before the crash."""
        if step.kind == "append":
            # An append of no lines creates a log, and does no harm if it is done twice.
            return bool(step.data) and self._read_at(step.path, step.offset, len(step.data)) == step.data
        if step.kind == "rewrite":
            return read_file(self.root, step.path)[0] == step.data
        return step.kind == "move" and read_file(self.root, step.path)[0] is None

    def _do(self, step: Step, *, is_journaled: bool = False, is_late: bool = False) -> None:
        match step.kind:
            case "write" | "rewrite":
                self._write(step, is_journaled, is_late)
            case "append":
                if is_late:
                    self._cut(step.path, step.offset)
                with self._writing(step.path) as (folder, name):
                    append_in(folder, name, step.data)
            case "blank":
                self._blank(step)
            case "move":
                self._move(step)
            case "erase":
                with self._writing(step.path) as (folder, name):
                    erase_in(folder, name)
            case "remove":
                self._remove(step.path)

    def _write(self, step: Step, is_journaled: bool, is_late: bool) -> None:
        """Write a document or a whole log. If another program changed a document after it was read, a commit of one
        change fails, a longer one saves the other's bytes first, and one that is finished late lets the other's bytes
        stand."""
        if step.kind == "write":
            current, _ = read_file(self.root, step.path)
            version = ABSENT if current is None else version_of(current)
            if version == version_of(step.data):
                return
            if version != step.before:
                if not is_journaled:
                    raise StorageConflict(f"{printable_line(step.path)}: it has changed.")
                self.displace(step.data if is_late else current or b"")
                if is_late:
                    return
        with self._writing(step.path) as (folder, name):
            if step.erase:
                replace_erasing_in(folder, name, step.data)
                return
            with replacing_in(folder, name, mtime_ns=step.modified_ns, sync=self.syncs_each) as file:
                file.write(step.data)

    def displace(self, data: bytes) -> None:
        """Keep bytes that would be lost otherwise."""
        if data:
            self._do(Step("rewrite", f"{DISPLACED}/{version_of(data)}", data))

    def _blank(self, step: Step) -> None:
        with opened_file(self.root, step.path, os.O_WRONLY) as handle:
            if handle is not None:
                try:
                    os.pwrite(handle, step.data, step.offset)
                    os.fsync(handle)
                except OSError as exc:
                    raise WriteFailed(f"{printable_line(step.path)}: could not be written ({exc.strerror}).") from exc

    def _move(self, step: Step) -> None:
        with self._writing(step.to) as (new, new_name), opened_folder(self.root, step.path) as old:
            name = step.path.rpartition("/")[2]
            os.rename(name, new_name, src_dir_fd=old, dst_dir_fd=new)
            try:
                sync_folder(new)
                sync_folder(old)
            except OSError:
                # Not known to be on disk, so the caller hears that nothing was changed. Then that has to be true.
                os.rename(new_name, name, src_dir_fd=new, dst_dir_fd=old)
                raise

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError), opened_folder(self.root, path) as folder:
            try:
                os.unlink(path.rpartition("/")[2], dir_fd=folder)
            except FileNotFoundError:
                return
            except OSError as exc:
                raise WriteFailed(f"{printable_line(path)}: could not be removed ({exc.strerror}).") from exc
            sync_folder(folder)

    def _cut(self, path: str, size: int) -> None:
        """Cut off what a killed process left of an append."""
        if self._read_at(path, size, 1):
            with opened_file(self.root, path, os.O_WRONLY) as handle:
                if handle is not None:
                    os.ftruncate(handle, size)
                    os.fsync(handle)

    def _read_at(self, path: str, offset: int, size: int) -> bytes:
        with opened_file(self.root, path) as handle:
            return b"" if handle is None else os.pread(handle, size, offset)

    @contextmanager
    def _writing(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the open folder of a file, created if it is missing, and the file's name there. Translate errors."""
        try:
            with opened_folder(self.root, path, create=True) as folder:
                yield folder, path.rpartition("/")[2]
        except OSError as exc:
            raise WriteFailed(f"{printable_line(path)}: could not be written ({exc.strerror}).") from exc
