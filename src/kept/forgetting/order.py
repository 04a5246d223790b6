"""The work of a forget, as a value, and the journal that keeps it until all of it is done.

The journal is written before the first change. It has the words in clear, because a run that finishes the work after a
crash needs them. It is overwritten and removed at the end, and `kept doctor` reports one that was left.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Protocol

from kept.durable import erase_file, replace_erasing
from kept.errors import ForgetFailed, WriteFailed
from kept.forgetting.needles import Needles
from kept.forgetting.places import ForgetPlan, Place
from kept.limits import strict_json
from kept.values import frozen

_VERSION = 1


@frozen
class LineCut:
    """Lines of a note to remove, provided that their text still has this digest."""

    path: str
    start_line: int
    lines: int
    digest: str


@frozen
class EntryCut:
    """Line of a transcript that loses its text: what matches, or ``whole`` all that it says."""

    path: str
    line: int
    digest: str
    whole: bool


@frozen
class ForgetOrder:
    id: str
    started: str
    request: str
    """Kind of the request: query, citation, meaning, session, person, before."""
    words: tuple[str, ...]
    lines: tuple[str, ...]
    cuts: tuple[LineCut, ...]
    entries: tuple[EntryCut, ...]
    notes: tuple[str, ...]
    """Notes that go as a whole."""
    sessions: tuple[str, ...]
    """Ids of sessions that go as a whole."""
    places: tuple[tuple[str, str], ...]
    """Kind and citation of each place, for the receipt."""
    unreachable: tuple[str, ...] = ()
    salt: str = ""
    sha256: str = ""
    """Salted hash of what is removed."""
    by_tool: bool = False
    is_scoped: bool = False
    """True if notes outside of a project were not looked at."""
    done: tuple[str, ...] = ()
    """Stores that are scrubbed."""
    workspace: str = ""
    """Folder of the notes. The work is finished only there: nobody has agreed to lose notes of another folder."""

    @property
    def needles(self) -> Needles:
        return Needles(self.words, self.lines)

    @property
    def words_only(self) -> Needles:
        """Needles for notes and transcripts: copies of removed lines there are places of their own."""
        return Needles(self.words)


@frozen
class ScrubResult:
    """Outcome of scrubbing one store."""

    removed: int = 0
    changed: tuple[str, ...] = ()
    """Citations of places that changed since they were shown, and were left alone."""
    unreachable: tuple[str, ...] = ()
    is_complete: bool = True
    """False if the store has to be scrubbed again, for the reason in ``unreachable``."""

    def __add__(self, other: ScrubResult) -> ScrubResult:
        return ScrubResult(
            self.removed + other.removed,
            self.changed + other.changed,
            self.unreachable + other.unreachable,
            self.is_complete and other.is_complete,
        )


def erase_files(paths: Iterable[str]) -> ScrubResult:
    """Erase files, and report those that cannot be erased."""
    result = ScrubResult()
    for path in paths:
        try:
            erase_file(path)
        except WriteFailed as exc:
            result += ScrubResult(unreachable=(exc.message,), is_complete=False)
        else:
            result += ScrubResult(removed=1)
    return result


class ForgetStore(Protocol):
    """A place where Kept keeps text. Scrubbing twice does no harm: a run after a crash repeats the last one."""

    @property
    def name(self) -> str: ...

    def scrub(self, order: ForgetOrder) -> ScrubResult: ...


def cuts_of(places: Iterable[Place]) -> tuple[LineCut, ...]:
    return tuple(
        LineCut(place.path, place.start_line, place.lines, place.digest)
        for place in places
        if place.kind == "note" and not place.whole
    )


def entries_of(plan: ForgetPlan) -> tuple[EntryCut, ...]:
    kinds = ("conversation", "import")
    return tuple(
        EntryCut(place.path, place.start_line, place.digest, place.whole)
        for place in plan.places
        if place.kind in kinds
    )


# the journal


def write_journal(path: str, order: ForgetOrder) -> None:
    data = json.dumps({"version": _VERSION, **asdict(order)}, ensure_ascii=True).encode()
    replace_erasing(path, data + b"\n")


def read_journal(path: str) -> ForgetOrder | None:
    """Return the forget that is under way or was interrupted, or None. Raise ForgetFailed if it cannot be read."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data.startswith(b"\0"):
            return None  # everything was done, and the journal was being overwritten
        tree = strict_json.decode(data.decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise _unreadable(path) from exc
    try:
        return _parse(tree)
    except (TypeError, KeyError, ValueError, AttributeError) as exc:
        raise _unreadable(path) from exc


def _parse(tree: dict[str, Any]) -> ForgetOrder:
    if tree.pop("version") != _VERSION:
        raise ValueError
    names = ("words", "lines", "notes", "sessions", "done")
    texts: dict[str, Any] = {name: tuple(map(str, tree.pop(name))) for name in names}
    return ForgetOrder(
        **texts,
        cuts=tuple(LineCut(**cut) for cut in tree.pop("cuts")),
        entries=tuple(EntryCut(**entry) for entry in tree.pop("entries")),
        places=tuple((str(kind), str(citation)) for kind, citation in tree.pop("places")),
        unreachable=tuple(map(str, tree.pop("unreachable"))),
        **tree,
    )


def _unreadable(path: str) -> ForgetFailed:
    return ForgetFailed(
        f"{path}: the journal of a forget that was interrupted cannot be read.",
        hint="Forget the same again, then delete that file.",
    )


def remove_journal(path: str) -> None:
    if os.path.lexists(path):
        erase_file(path)


def mark_done(path: str, order: ForgetOrder, store: str) -> ForgetOrder:
    """Record that a store is scrubbed."""
    order = replace(order, done=(*order.done, store))
    write_journal(path, order)
    return order
