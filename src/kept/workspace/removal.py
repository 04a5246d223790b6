"""Removes passages from notes. A copy is first kept among the agent's files, where no search looks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from kept.clock import Clock
from kept.durable import append_durably, locked, make_private_folder, mend_end, write_atomic
from kept.errors import KeptError, WriteFailed
from kept.values import frozen
from kept.workspace.change_recorder import ChangeRecorder, recording
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import NoteText, OpenWorkspace, require_utf8
from kept.workspace.workspace import Workspace

_RAW_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@frozen
class LineRemoval:
    """Lines of a note to remove, provided that their text still has this digest."""

    path: str
    start_line: int
    end_line: int
    digest: str

    @classmethod
    def of(cls, path: str, start_line: int, text: str) -> LineRemoval:
        return cls(path, start_line, start_line + text.count("\n"), digest_of(text))


@frozen
class Removed:
    gone: tuple[LineRemoval, ...]
    changed: tuple[LineRemoval, ...]
    """Lines with another text by now. They were left alone."""
    failures: tuple[str, ...] = ()


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def remove_passages(
    workspace: Workspace,
    cuts: Sequence[LineRemoval],
    *,
    kept_in: str,
    clock: Clock,
    max_bytes: int,
    recorder: ChangeRecorder | None = None,
) -> Removed:
    """Remove passages, note by note. Each note is replaced atomically."""
    gone: list[LineRemoval] = []
    changed: list[LineRemoval] = []
    failures: list[str] = []
    with locked(workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
        for path in dict.fromkeys(cut.path for cut in cuts):
            try:
                fits, others = _remove_from(
                    workspace, path, [cut for cut in cuts if cut.path == path], kept_in, clock, max_bytes, recorder
                )
            except KeptError as exc:
                failures.append(exc.message)
                continue
            gone += fits
            changed += others
    return Removed(tuple(gone), tuple(changed), tuple(failures))


def _remove_from(
    workspace: Workspace,
    path: str,
    cuts: list[LineRemoval],
    kept_in: str,
    clock: Clock,
    max_bytes: int,
    recorder: ChangeRecorder | None,
) -> tuple[list[LineRemoval], list[LineRemoval]]:
    absolute = workspace.locate(path)
    workspace.require_own(absolute, path)
    with OpenWorkspace(workspace) as opened:
        note = opened.read(absolute, max_bytes=max_bytes)
        lines = note.text.split("\n")
        fits = [cut for cut in cuts if digest_of("\n".join(lines[cut.start_line - 1 : cut.end_line])) == cut.digest]
        if fits:
            require_utf8(note.raw, path)
            _log_removed(kept_in, path, lines, fits, clock)
            rest = _without(note, lines, fits)
            with recording(recorder, path, note.raw, rest, kind="remove"):
                write_atomic(absolute, rest, dir_fd=opened.folder_of(absolute))
    return fits, [cut for cut in cuts if cut not in fits]


def _log_removed(kept_in: str, path: str, lines: list[str], cuts: list[LineRemoval], clock: Clock) -> None:
    records: list[dict[str, Any]] = [
        {
            "forgotten": clock.now().isoformat(timespec="seconds"),
            "path": path,
            "startLine": cut.start_line,
            "endLine": cut.end_line,
            "text": "\n".join(lines[cut.start_line - 1 : cut.end_line]),
        }
        for cut in cuts
    ]
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    folder = kept_in.rpartition("/")[0]
    try:
        make_private_folder(folder)
    except OSError as exc:
        raise WriteFailed(f"{folder}: could not be made ({exc.strerror}).") from exc
    with locked(folder, wait_s=LOCK_WAIT_S, purpose="forgetting"):
        mend_end(kept_in, lambda raw: raw.endswith(b"}"))
        append_durably(kept_in, data.encode("utf-8", "backslashreplace"))


def _without(note: NoteText, lines: list[str], cuts: list[LineRemoval]) -> bytes:
    """Return the bytes of a note without those lines, and without the second of two blank lines that would meet."""
    raw = _RAW_LINE.findall(note.raw)
    dropped = {number for cut in cuts for number in range(cut.start_line, cut.end_line + 1)}
    for cut in cuts:
        before, after = cut.start_line - 1, cut.end_line + 1
        blank_before = before < 1 or not lines[before - 1].strip()
        if blank_before and after <= len(raw) and not lines[after - 1].strip():
            dropped.add(after)
    return b"".join(line for number, line in enumerate(raw, 1) if number not in dropped)
