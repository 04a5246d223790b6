"""`FileStorage`: documents and logs in a folder.

Readers take no lock. A file is replaced by a rename, and a log's line counts once it ends with a line break, so a
reader sees a change whole or not at all. While a commit of several changes is under way its journal is there, and a
reader waits until it is gone; if its process was killed, the reader finishes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from kept.base.durable import make_private_folder
from kept.base.file_lock import locked
from kept.base.limits import printable_line
from kept.base.values import frozen
from kept.errors import DocumentNotFound, LeaseLost, PathRefused, StorageConflict, WriteFailed
from kept.storage.contract import (
    ABSENT,
    OWN_FOLDER,
    START,
    Append,
    Blank,
    Change,
    Changed,
    Choose,
    Cursor,
    Document,
    DocumentInfo,
    Ends,
    Erase,
    Lease,
    LogInfo,
    LogLine,
    LogPosition,
    Move,
    OnRefused,
    Remove,
    Rewrite,
    Write,
    check_blank,
    check_changes,
    check_name,
    is_log,
    version_conflict,
    version_of,
)
from kept.storage.files.folders import find_state, opened_file, opened_folder, read_file, walk
from kept.storage.files.steps import JOURNAL, REWRITTEN, Step, Steps

LOCK_WAIT_S = 30.0
_RACY_NS = 50_000_000
"""A file that changed this shortly before a scan may change again without getting another time."""
_BLOCK = 1 << 16
_GENERATIONS = "generations"


class FileStorage:
    """Safe between threads and processes. Holds nothing open between calls."""

    def __init__(self, root: str, *, is_read_only: bool = False) -> None:
        """``is_read_only`` is for a folder that belongs to others: nothing is ever written there."""
        self.root = os.path.abspath(root)
        self.own_folder = os.path.join(self.root, OWN_FOLDER)
        self._journal = os.path.join(self.root, JOURNAL)
        self._is_read_only = is_read_only
        self.documents = FileDocuments(self)
        self.logs = FileLogs(self)
        self._held: dict[Lease, str] = {}
        """File of each lease."""

    # committing

    def commit(self, changes: Sequence[Change], *, lease: Lease | None = None) -> Ends:
        check_changes(changes)
        with self._locked():
            if lease is not None:
                # A process that was frozen may have a successor by now. A lease that was given back has no file here.
                with opened_file(self.root, self._held.get(lease, "")) as handle:
                    if handle is None or _read_number(handle) != lease.number:
                        raise LeaseLost(f"Another process holds the lease '{lease.name}'.")
            # Everything is looked at before anything is changed, so what does not fit is refused as a whole.
            steps = [self._resolve(change) for change in changes]
            if steps:
                # A log that may have lost lines gets another generation in the same commit, so that no reader takes it
                # for one that has only grown.
                changed = dict.fromkeys(step.path for step in steps if step.kind in ("blank", "rewrite"))
                Steps(self.root).run([*steps, *map(self.logs.count_change, changed)])
            return {step.path: LogPosition(step.end) for step in steps if step.kind in ("append", "rewrite")}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the storage, with nothing half done in it."""
        if self._is_read_only:
            raise PathRefused(f"{self.root}: is read, never written.")
        # The storage may have no files of its own, be it for a link or for missing permissions. A folder in it may be
        # writable all the same, so the folder itself is locked then.
        path = f"{self.own_folder}/lock"
        try:
            with opened_folder(self.root, f"{OWN_FOLDER}/lock", create=True):
                pass
        except OSError as exc:
            if not os.path.isdir(self.root):
                raise self._not_writable(exc) from exc
            path = self.root
        with locked(path, wait_s=LOCK_WAIT_S, purpose="writing to this memory"):
            if os.path.lexists(self._journal):
                Steps(self.root).finish()
            yield

    def settle(self, name: str | None = None) -> None:
        """Wait for a commit that is under way, or finish it if its process was killed and the disk allows it.

        Raise PathRefused for the name of something to read that is not allowed.
        """
        if name is not None:
            check_name(name)
        if not self._is_read_only and os.path.lexists(self._journal):
            with suppress(WriteFailed), self._locked():
                pass

    def _resolve(self, change: Change) -> Step:
        match change:
            case Append(log, lines, expected_end):
                offset, base = self.logs.repair_end(log, expected_end)
                data = b"".join(line + b"\n" for line in lines)
                return Step("append", log, data, offset=offset, end=base + offset + len(data))
            case Rewrite(log, lines, expected_end, erase):
                start = sum(self.logs.repair_end(log, expected_end))
                data = b"".join(line + b"\n" for line in lines)
                # A log that never had a line needs no header: its positions are its offsets.
                header = REWRITTEN + b"%20d}\n" % start if start else b""
                return Step("rewrite", log, header + data, end=start + len(data), erase=erase)
            case Blank():
                return self.logs.resolve_blank(change)
        path = change.path
        present, _ = read_file(self.root, path)
        before = ABSENT if present is None else version_of(present)
        if change.expected is not None and before != change.expected:
            raise version_conflict(path, before, change.expected)
        match change:
            case Write(data=data, erase=erase, modified_ns=modified_ns):
                return Step("write", path, data, before, erase=erase, modified_ns=modified_ns)
            case Remove() | Erase():
                return Step("remove" if isinstance(change, Remove) else "erase", path, before=before)
            case Move(to=to):
                if not before:
                    raise DocumentNotFound(f"{printable_line(path)}: there is no such document.")
                if (occupant := read_file(self.root, to)[0]) is not None:
                    raise version_conflict(to, version_of(occupant), ABSENT)
                return Step("move", path, before=before, to=to)

    # the folder itself

    def exists(self) -> bool:
        return os.path.isdir(self.root)

    def make(self, folder: str = "") -> None:
        try:
            make_private_folder(os.path.join(self.root, folder))
        except OSError as exc:
            raise self._not_writable(exc) from exc

    def is_writable(self, folder: str = "") -> bool:
        return not self._is_read_only and os.access(os.path.join(self.root, folder), os.W_OK)

    # leases

    @contextmanager
    def lease(self, name: str, *, wait_s: float) -> Iterator[Lease]:
        check_name(name)
        self.make(f"{OWN_FOLDER}/leases")
        path = f"{OWN_FOLDER}/leases/{name.replace('/', '%')}"
        purpose = f"holding the lease '{name}'"
        with locked(os.path.join(self.root, path), wait_s=wait_s, purpose=purpose) as handle:
            lease = Lease(name, _read_number(handle) + 1)
            # On disk before anybody holds it: after a power cut the next holder must not get the same number.
            os.pwrite(handle, b"%020d" % lease.number, 0)
            os.fsync(handle)
            self._held[lease] = path
            try:
                yield lease
            finally:
                self._held.pop(lease, None)

    def _not_writable(self, exc: OSError) -> WriteFailed:
        return WriteFailed(f"{self.root}: could not be written ({exc.strerror}).")


def _read_number(handle: int) -> int:
    digits = os.pread(handle, 20, 0)
    return int(digits) if digits.isdigit() else 0


@frozen
class _SeenFiles:
    """Cursor: the state of every document, empty for one that may have changed within the same tick of the clock."""

    states: dict[str, str]


@frozen
class FileDocuments:
    _storage: FileStorage

    def list(
        self, prefix: str = "", *, choose: Choose | None = None, on_refused: OnRefused | None = None
    ) -> Iterator[DocumentInfo]:
        self._storage.settle()
        for path, state in walk(self._storage.root, prefix, choose, on_refused):
            if not is_log(path):
                yield _info(path, state)

    def find(self, path: str) -> DocumentInfo | None:
        self._storage.settle(path)
        state = None if is_log(path) else find_state(self._storage.root, path)
        return None if state is None else _info(path, state)

    def read(self, path: str, *, max_bytes: int | None = None) -> Document:
        self._storage.settle(path)
        data, state = (None, None) if is_log(path) else read_file(self._storage.root, path, max_bytes)
        if data is None or state is None:
            raise DocumentNotFound(f"{printable_line(path)}: there is no such document.")
        return Document(path, data, version_of(data), _info(path, state))

    def is_same(self, path: str, other: str) -> bool:
        try:
            states = [os.stat(os.path.join(self._storage.root, name)) for name in (path, other)]
        except (OSError, ValueError):
            return False
        return os.path.samestat(*states)

    def changes(self, since: Cursor | None = None) -> tuple[Sequence[Changed], Cursor]:
        seen = since.states if isinstance(since, _SeenFiles) else {}
        racy_ns = time.time_ns() - _RACY_NS  # before the scan, which may take longer than that
        states: dict[str, str] = {}
        changed = []
        for info in self.list():
            states[info.path] = info.state if info.changed_ns < racy_ns else ""
            if seen.get(info.path) != info.state:
                changed.append(Changed(info.path, info))
        changed += [Changed(path, None) for path in seen if path not in states]
        return changed, _SeenFiles(states)


def _generation_path(name: str) -> str:
    return f"{OWN_FOLDER}/{_GENERATIONS}/{version_of(os.fsencode(name))[:32]}"


def _info(path: str, state: os.stat_result) -> DocumentInfo:
    mark = f"{state.st_ctime_ns}-{state.st_mtime_ns}-{state.st_size}-{state.st_ino}"
    return DocumentInfo(path, mark, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def _log_info(name: str, state: os.stat_result, generation: int) -> LogInfo:
    info = _info(name, state)
    return LogInfo(name, f"{info.state}-{generation:x}", info.size, info.modified_ns, generation, info.changed_ns)


@frozen
class FileLogs:
    """Logs as files of lines. A position is the offset of a line, plus the end that the log had before a rewrite."""

    _storage: FileStorage

    def read(self, name: str, start: LogPosition = START) -> Iterator[LogLine]:
        self._storage.settle(name)
        with opened_file(self._storage.root, name) as handle:
            if handle is None:
                return
            first, base = _read_base(handle)
            with open(handle, "rb", buffering=_BLOCK, closefd=False) as file:
                offset = file.seek(max(first, start.offset - base))
                if offset > first:  # a position inside of a line means the next one
                    file.seek(offset - 1)
                    offset += len(file.readline()) - 1
                for raw in file:
                    if not raw.endswith(b"\n"):
                        return
                    end = offset + len(raw)
                    yield LogLine(raw[:-1], LogPosition(base + offset), LogPosition(base + end))
                    offset = end

    def read_back(
        self, name: str, end: LogPosition | None = None, *, having: Sequence[bytes] = ()
    ) -> Iterator[LogLine]:
        self._storage.settle(name)
        with opened_file(self._storage.root, name) as handle:
            if handle is None:
                return
            first, base = _read_base(handle)
            size, rest = os.fstat(handle).st_size, b""
            texts = having or (b"",)
            at = size if end is None else min(size, end.offset - base)
            while at > first:
                start = max(first, at - _BLOCK)
                block = os.pread(handle, at - start, start) + rest
                # What comes before the first line break may be the end of a line that begins in an earlier block. What
                # comes after the last one is no line: a crash tore it.
                cut = 0 if start == first else block.find(b"\n") + 1
                stop = base + start + block.rfind(b"\n") + 1
                # Most blocks have none of the texts. They are not even split.
                lines = block[cut:].split(b"\n")[:-1] if any(text in block for text in texts) else []
                for line in reversed(lines):
                    if any(text in line for text in texts):
                        yield LogLine(line, LogPosition(stop - len(line) - 1), LogPosition(stop))
                    stop -= len(line) + 1
                rest, at = block[:cut], start

    def list(self, prefix: str = "") -> Iterator[LogInfo]:
        self._storage.settle()
        folder = f"{self._storage.own_folder}/{_GENERATIONS}"
        changed = frozenset(os.listdir(folder)) if os.path.isdir(folder) else frozenset()
        for path, state in walk(self._storage.root, prefix):
            if is_log(path):
                # Few logs were ever rewritten, so nearly none of them costs the reading of another file.
                is_changed = bool(changed) and os.path.basename(_generation_path(path)) in changed
                yield _log_info(path, state, self._read_generation(path) if is_changed else 0)

    def find(self, name: str) -> LogInfo | None:
        self._storage.settle(name)
        state = find_state(self._storage.root, name) if is_log(name) else None
        return None if state is None else _log_info(name, state, self._read_generation(name))

    def end(self, name: str) -> LogPosition:
        self._storage.settle(name)
        with opened_file(self._storage.root, name) as handle:
            return LogPosition(sum(_find_end(handle)))

    # for commits

    def resolve_blank(self, change: Blank) -> Step:
        log, position = change.path, change.position
        old = next(self.read(log, position), None)
        if old is None or old.start != position:
            raise StorageConflict(f"{printable_line(log)}: no line begins at this position.")
        with opened_file(self._storage.root, log) as handle:
            base = _find_end(handle)[1]
        return Step("blank", log, check_blank(log, old.data, change.line), offset=position.offset - base)

    def count_change(self, name: str) -> Step:
        """Return the step that counts the generation of a log whose lines a commit changes."""
        generation = self._read_generation(name)
        before = version_of(b"%d" % generation) if generation else ABSENT
        return Step("write", _generation_path(name), b"%d" % (generation + 1), before)

    def _read_generation(self, name: str) -> int:
        digits = read_file(self._storage.root, _generation_path(name))[0] or b""
        return int(digits) if digits.isdigit() else 0

    def repair_end(self, name: str, expected: LogPosition | None) -> tuple[int, int]:
        """Return the offset at which to append, and the base of positions. Bytes that a crash tore are put aside."""
        with opened_file(self._storage.root, name, os.O_RDWR) as handle:
            end, base = _find_end(handle)
            torn = b"" if handle is None else os.pread(handle, os.fstat(handle).st_size - end, end)
            if handle is not None and torn:
                try:
                    json.loads(torn)
                    os.pwrite(handle, b"\n", end + len(torn))  # a whole line that lacks only its line break
                    end += len(torn) + 1
                except ValueError:
                    Steps(self._storage.root).displace(torn)
                    os.ftruncate(handle, end)
                os.fsync(handle)
        # After the repair: a line that lacked its line break is one that the caller has not seen.
        if expected is not None and expected.offset != base + end:
            raise StorageConflict(f"{printable_line(name)}: it has other lines at its end.")
        return end, base


def _read_base(handle: int) -> tuple[int, int]:
    """Return the offset of the first line in the file, and what to add to an offset to get a position."""
    head = os.pread(handle, len(REWRITTEN) + 22, 0)
    digits = head[len(REWRITTEN) : -2].strip()
    # What is damaged is a line as any other, which its reader skips.
    if not (head.startswith(REWRITTEN) and head.endswith(b"}\n") and digits.isdigit() and len(digits) < 19):
        return 0, 0
    return len(head), int(digits) - len(head)


def _find_end(handle: int | None) -> tuple[int, int]:
    """Return the offset after the last whole line of a log, and the base of positions."""
    if handle is None:
        return 0, 0
    first, base = _read_base(handle)
    at = os.fstat(handle).st_size
    while at > first:
        start = max(first, at - _BLOCK)
        cut = os.pread(handle, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1, base
        at = start
    return first, base
