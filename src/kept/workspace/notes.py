"""Adding to notes and reading them back: the daily log, long-term memory, and any other note."""

from __future__ import annotations

import datetime as dt
import os

from kept.clock import Clock
from kept.durable import append_durably, write_atomic
from kept.errors import EmptyNote, NoteTooLarge, PathRefused, WriteFailed
from kept.lock import locked
from kept.records import Passage, Written
from kept.workspace.daily import daily_name, daily_parts
from kept.workspace.files import decode, read_note
from kept.workspace.paths import Workspace

LOCK_WAIT_S = 10.0
DEFAULT_LINES = 200
MAX_PASSAGE_CHARS = 60_000


def add_note(workspace: Workspace, text: str, *, to: str, clock: Clock, max_bytes: int) -> Written:
    """Appends a text to the daily log ('daily'), to MEMORY.md ('memory') or to a note named by its path."""
    text = decode(text.encode("utf-8", errors="replace"))[0].strip("\n")
    if not text.strip():
        raise EmptyNote("There is nothing to remember.")
    workspace.require()
    with locked(workspace.root, wait_s=LOCK_WAIT_S, purpose="writing to this workspace"):
        if to == "daily":
            # The date is taken under the lock: two writers around midnight each get the day they wrote on.
            return _append_daily(workspace, text, clock.now(), max_bytes=max_bytes)
        if to == "memory":
            item = text if "\n" in text or text.startswith(("-", "*", "#")) else f"- {text}"
            path, entry, opening = _memory_name(workspace), item, "# Memory\n"
        else:
            path, entry, opening = _writable(workspace, to), text, ""
        return _append(workspace, path, entry + "\n", opening=opening, tight=to == "memory", max_bytes=max_bytes)


def _append_daily(workspace: Workspace, text: str, now: dt.datetime, *, max_bytes: int) -> Written:
    """Where the day's log is full, it goes on in a further file."""
    entry, opening = f"## {now:%H:%M}\n\n{text}\n", f"# {now:%Y-%m-%d}\n"
    parts = daily_parts(workspace, now)
    path = parts[-1] if parts else daily_name(now)
    try:
        return _append(workspace, path, entry, opening=opening, tight=False, max_bytes=max_bytes)
    except NoteTooLarge:
        if not parts:
            raise
    path = daily_name(now, len(parts) + 1)
    return _append(workspace, path, entry, opening=opening, tight=False, max_bytes=max_bytes)


def _memory_name(workspace: Workspace) -> str:
    lower = os.path.join(workspace.root, "memory.md")
    upper = os.path.join(workspace.root, "MEMORY.md")
    return "memory.md" if os.path.isfile(lower) and not os.path.isfile(upper) else "MEMORY.md"


def _writable(workspace: Workspace, to: str) -> str:
    absolute = workspace.locate(to, must_exist=False)
    name = workspace.cite(absolute)
    if not workspace.is_indexed(absolute):
        raise PathRefused(
            f"{to}: a note there would not be searched.",
            hint="Put it under memory/, for example memory/" + os.path.basename(name) + ".",
        )
    return name


def _append(workspace: Workspace, path: str, entry: str, *, opening: str, tight: bool, max_bytes: int) -> Written:
    """One append: the blank line that parts it from what stands before, and the entry."""
    absolute = workspace.locate(path, must_exist=False)
    before = _tail_state(absolute)
    if before.size == 0:
        lead = opening + "\n" if opening else ""
    else:
        lead = "" if before.ends_with_newline else "\n"
        if not before.ends_with_blank_line and not (tight and before.ends_in_list and entry.startswith("- ")):
            lead += "\n"
    data = (lead + entry).encode("utf-8")
    if before.size + len(data) > max_bytes:
        raise NoteTooLarge(f"{path}: with this it would have more than the limit of {max_bytes:,} bytes.")
    append_durably(absolute, data)
    first = before.lines + lead.count("\n") + 1
    return Written(path, first, first + entry.count("\n") - 1)


class _Tail:
    """How a file ends, which decides what has to stand between it and an appended entry."""

    def __init__(self, raw: bytes) -> None:
        # A lone '\r' at the end is half a line end as soon as a '\n' follows it.
        half = raw.endswith(b"\r")
        text, _ = decode(raw.removesuffix(b"\r"))
        self.size = len(raw)
        self.lines = text.count("\n")
        self.ends_with_newline = text.endswith("\n") and not half
        self.ends_with_blank_line = text.endswith("\n\n") and not half
        last = text.rstrip("\n").rpartition("\n")[2]
        self.ends_in_list = last.startswith("- ")


def _tail_state(absolute: str) -> _Tail:
    try:
        with open(absolute, "rb") as file:
            return _Tail(file.read())
    except FileNotFoundError:
        return _Tail(b"")
    except OSError as exc:
        raise WriteFailed(f"{absolute}: could not be read before writing ({exc.strerror}).") from exc


def create_note(workspace: Workspace, path: str, text: str) -> bool:
    """Writes a note that is not there yet. False, and nothing changed, where there is one."""
    absolute = workspace.locate(path, must_exist=False)
    if os.path.lexists(absolute):
        return False
    write_atomic(absolute, text.encode("utf-8"))
    return True


def read_passage(
    workspace: Workspace, path: str, *, start: int = 1, lines: int | None = None, max_bytes: int
) -> Passage:
    """Lines of a note, at most DEFAULT_LINES unless more are asked for."""
    note = read_note(workspace.locate(path), max_bytes=max_bytes)
    shown = note.text.split("\n")
    if shown and shown[-1] == "":
        shown.pop()
    first = max(1, start)
    wanted = DEFAULT_LINES if lines is None else max(1, lines)
    taken: list[str] = []
    chars = 0
    for line in shown[first - 1 : first - 1 + wanted]:
        if taken and chars + len(line) > MAX_PASSAGE_CHARS:
            break
        taken.append(line)
        chars += len(line) + 1
    after = first + len(taken)
    more = after <= len(shown) and bool(taken)
    return Passage(
        path=workspace.cite(workspace.locate(path)),
        start=first,
        lines=len(taken),
        text="\n".join(taken),
        truncated=more,
        next_from=after if more else None,
    )
