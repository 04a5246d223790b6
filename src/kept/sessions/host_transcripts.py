"""Transcripts of other machines: copies in folders of their own, beside the transcripts of this machine.

    agents/main/sessions/20260314T150926Z_1f0e….jsonl         this machine's, which alone it writes to
    agents/main/sessions/desk/20260314T080211Z_77ab….jsonl    a copy of one of the machine desk

Nothing here changes what a copy says, but for what was forgotten here: that does not come back. A line that lost its
text, here or at its machine, keeps its length, so offsets are the same on all machines. Names come from other machines:
they are checked before they become paths, and no link is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from kept.config.agent_paths import AgentPaths
from kept.durable import append_durably, erase_file, make_folder_in, make_private_folder, replace_erasing
from kept.errors import PathRefused, TranscriptUnreadable, TranscriptUnwritable, UsageError, WriteFailed
from kept.file_lock import locked
from kept.host_names import is_host_name, is_same_host
from kept.limits import is_utf8, printable_line
from kept.sessions.blanking import blank_line, renew_receipts
from kept.sessions.deleted import DeletedSessions
from kept.sessions.forgotten_text import ForgottenText
from kept.sessions.transcript import LOCK_WAIT_S, RawLine
from kept.sessions.transcript_paths import cite_transcript, is_transcript, list_host_folders, parse_transcript_name

Placed = Literal["unchanged", "grown", "replaced", "own", "deleted"]
"""What became of a transcript that arrived. ``own``: this machine has it, so it is no copy. ``deleted``: it was
forgotten here as a whole."""
_MAX_NAME_BYTES = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HostTranscripts:
    """Copies of other machines' transcripts of one agent. Safe between threads and processes.

    ``own_host`` is the name of this machine, whose transcripts are never copies.
    """

    def __init__(self, paths: AgentPaths, own_host: str) -> None:
        self.folder = paths.sessions
        self.own_host = own_host
        self._deleted = DeletedSessions(paths.deleted_sessions, self.folder)
        self._forgotten = ForgottenText(paths.forgotten_hashes)

    # reading

    def hosts(self) -> list[str]:
        return [os.path.basename(folder) for folder in list_host_folders(self.folder)]

    def names(self, host: str) -> list[str]:
        """Return the names of the transcripts of a machine, sorted."""
        try:
            return sorted(name for name in os.listdir(self._host_folder(host)) if is_transcript(name))
        except FileNotFoundError:
            return []

    def size(self, host: str, name: str) -> int:
        """Return how many bytes of a transcript are here, in whole lines: where `append` goes on."""
        return _whole_lines(_read(self.path(host, name)))

    def path(self, host: str, name: str) -> str:
        """Return the path of a copy. Raise PathRefused for a name that cannot be that of one."""
        self.require_name(name)
        return os.path.join(self._host_folder(host), name)

    def require_name(self, name: str) -> None:
        """Raise PathRefused for a name that cannot be that of a transcript on every machine."""
        if not is_utf8(name) or "/" in name or "\\" in name or "\0" in name or not is_transcript(name):
            raise PathRefused(f"{printable_line(name)}: not the name of a transcript.", hint="It is not taken.")
        if printable_line(name) != name or len(name.encode()) > _MAX_NAME_BYTES:
            raise PathRefused(f"{printable_line(name)[:80]}: not the name of a transcript.", hint="It is not taken.")

    def _host_folder(self, host: str) -> str:
        if not is_utf8(host) or not is_host_name(host):
            raise PathRefused(
                f"'{printable_line(host)[:80]}' cannot be the name of a machine.", hint="It is not taken."
            )
        if is_same_host(host, self.own_host):
            raise PathRefused(f"'{host}' is this machine.", hint="Name each machine differently with sync.git.host.")
        for known in self.hosts():
            if known != host and is_same_host(known, host):
                raise PathRefused(
                    f"The machines '{known}' and '{host}' differ only in case.",
                    hint="Name each machine differently with sync.git.host.",
                )
        return os.path.join(self.folder, host)

    # writing

    def place(self, host: str, name: str, data: bytes) -> Placed:
        """Make a copy what its machine has now. Only whole lines are taken: the rest comes with its line break.

        A transcript only grows. So lines that are here and not in ``data``, which is older then, stay.
        """
        path = self.path(host, name)
        with self._opened_host(host) as folder:
            return self.find_refusal(name) or self._write(path, folder, data)

    def append(self, host: str, name: str, data: bytes, *, offset: int) -> Placed:
        """Append the bytes that a transcript has from an offset on. Those that are here already are compared.

        Raise UsageError if bytes before the offset are missing here: pass those from `size` on.
        """
        path = self.path(host, name)
        with self._opened_host(host) as folder:
            here = _read(path, folder)
            size = _whole_lines(here)
            if offset > size:
                raise UsageError(f"{cite_transcript(path)}: only {size:,} bytes are here, not {offset:,}.", hint="")
            return self.find_refusal(name) or self._write(path, folder, here[:offset] + data)

    def remove(self, host: str, name: str) -> bool:
        """Remove the copy of a transcript that was deleted at its machine. Return whether there was one."""
        path = self.path(host, name)
        if not os.path.lexists(path):
            return False
        with self._opened_host(host) as folder, _translated():
            erase_file(path, dir_fd=folder)
        return True

    @contextmanager
    def _opened_host(self, host: str) -> Iterator[int]:
        """Hold the lock of the transcripts' folder, and yield the open folder of a machine, created if need be."""
        try:
            make_private_folder(self.folder)
            with locked(self.folder, wait_s=LOCK_WAIT_S, purpose="receiving conversations"):
                parent = os.open(self.folder, _FOLDER)
                try:
                    make_folder_in(parent, host)
                    handle = os.open(host, _FOLDER, dir_fd=parent)
                finally:
                    os.close(parent)
                try:
                    yield handle
                finally:
                    os.close(handle)
        except OSError as exc:
            raise TranscriptUnwritable(f"{self.folder}/{host}: cannot be written ({exc.strerror}).") from exc

    def find_refusal(self, name: str) -> Placed | None:
        """Return why a transcript is not placed, or None: it is this machine's, or it was forgotten as a whole."""
        if os.path.lexists(os.path.join(self.folder, name)):
            return "own"
        return "deleted" if self._deleted.find(parse_transcript_name(name)[0]) is not None else None

    def _write(self, path: str, folder: int, data: bytes) -> Placed:
        self._forgotten.refresh()
        raw = _read(path, folder)
        here, data = raw[: _whole_lines(raw)], data[: _whole_lines(data)]
        lines = self._without_forgotten(data + here[len(data) :], here, os.path.basename(path))
        with _translated():
            if lines == raw:
                return "unchanged"
            if here and raw == here and lines.startswith(here):
                append_durably(path, lines[len(here) :], dir_fd=folder)
            else:  # it is new, lines lost their text, or a process was killed while it wrote the last one
                replace_erasing(path, lines, dir_fd=folder)
        return "grown" if lines.startswith(here) else "replaced"

    def _without_forgotten(self, data: bytes, here: bytes, name: str) -> bytes:
        """Return lines without what was forgotten: here, as the copy or the words show, or at their machine."""
        if data.startswith(here) and not self._forgotten:
            return data
        before = list(_iter_lines(data))
        after = [replace(line, raw=self._clean(line.raw, here[line.start : line.end])) for line in before]
        return b"".join(line.raw for line in renew_receipts(before, after, cite_transcript(name)))

    def _clean(self, raw: bytes, here: bytes) -> bytes:
        if self._forgotten:
            raw = blank_line(raw, self._forgotten.matches)
        # A line that lost text has spaces at its end, and its old length.
        return here if len(here) == len(raw) and len(here.rstrip()) < len(raw.rstrip()) else raw


def _iter_lines(data: bytes) -> Iterator[RawLine]:
    offset = 0
    for number, raw in enumerate(data.split(b"\n")[:-1], 1):  # `splitlines` also splits at other characters
        end = offset + len(raw) + 1
        yield RawLine(number, offset, end, raw + b"\n")
        offset = end


def _whole_lines(data: bytes) -> int:
    """Return the number of bytes up to the last line break."""
    return data.rfind(b"\n") + 1


def _read(path: str, folder: int | None = None) -> bytes:
    """Return the bytes of a copy, or none if there is none."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path if folder is None else os.path.basename(path), flags, dir_fd=folder)
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise TranscriptUnreadable(f"{path}: cannot be read ({exc.strerror}).") from exc
    with open(handle, "rb") as file:
        return file.read()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except WriteFailed as exc:
        raise TranscriptUnwritable(exc.message) from exc
