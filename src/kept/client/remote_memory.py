"""`RemoteMemory`: a memory that a server keeps, with the methods of `Memory`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kept.base.clock import new_id
from kept.base.git_remote import repository_keys
from kept.base.listings import BrokenLinks, Listing, NoteLinks, TagList
from kept.base.records import Passage, Progress, SearchResult, Written
from kept.base.reports import Status
from kept.client.outbox import Outbox, WaitingWrite
from kept.client.server_connection import ServerConnection, read_login
from kept.errors import ServerUnreachable
from kept.notes.history.note_history import Author, NoteChange
from kept.notes.history.undo import UndoResult
from kept.notes.review_queue import ReviewItem, ReviewList, ReviewPreview, ReviewResult

if TYPE_CHECKING:
    from kept.forgetting.plan import ForgetPlan
    from kept.forgetting.receipt import ForgetReceipt
    from kept.storage.contract import Storage

    When = dt.datetime | dt.date | dt.timedelta | str
    Path = str | os.PathLike[str]


class RemoteMemory:
    """A memory that a server keeps. `Memory.connect` makes one; its methods are those of `Memory`, and do the same.

    What a token may do and see is what it can do and see here. Arguments for other programs on the same machine, such
    as ``progress`` and ``author``, have no effect: the server records the token.
    """

    def __init__(self, connection: ServerConnection, outbox: Outbox | None = None) -> None:
        """Without an ``outbox``, a write that cannot be sent raises ServerUnreachable."""
        self._connection = connection
        self._call = connection.call
        self.place = connection.login.url
        """Where the notes are, for people."""
        self._outbox = outbox
        self.refused: list[WaitingWrite] = outbox.send(connection) if outbox else []
        """Earlier writes that the server has refused just now."""
        self.notes = RemoteNotes(connection)
        self.history = RemoteHistory(connection)
        self.review = RemoteReview(connection)
        self.forgetting = RemoteForgetting(connection)

    @classmethod
    def open(cls, home: Storage) -> RemoteMemory:
        """Open the memory that a home is logged in to."""
        return cls(ServerConnection(read_login(home)), Outbox(home))

    def __enter__(self) -> RemoteMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def search(
        self,
        query: str = "",
        *,
        path: Path | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | None = None,
        tags: str | Iterable[str] = (),
        progress: Progress | None = None,
        **options: Any,
    ) -> SearchResult:
        """Return passages of notes and conversations that answer a query, best first. See `Memory.search`."""
        times = {"since": _when(since), "until": _when(until), "as_of": _when(as_of)}
        return self._call("search", SearchResult, query=query, path=_path(path), tags=_texts(tags), **times, **options)

    def add(
        self,
        text: str,
        *,
        to: Path | None = None,
        replaces: str | None = None,
        again: bool = False,
        project: str | None = None,
        author: Author | None = None,
        why: str = "",
        moment: dt.datetime | None = None,
        change_id: str | None = None,
    ) -> Written:
        """Append a text to a note. See `Memory.add`. If the server cannot be reached, the text waits here."""
        arguments = {"to": _path(to), "replaces": replaces, "again": again, "project": project, "why": why}
        fields = {name: value for name, value in arguments.items() if value} | {"text": text}
        write = WaitingWrite(change_id or new_id(), "add", fields)
        write.arguments.update(change_id=write.id, moment=(moment or dt.datetime.now()).astimezone().isoformat())
        try:
            if not (self._outbox and self._outbox.read()):  # otherwise the server was just asked, in vain
                return self._call("add", Written, **write.arguments)
        except ServerUnreachable:
            if self._outbox is None:
                raise
        self._outbox.put(write)
        return Written("", 0, 0, is_waiting=True)

    def read(self, path: Path, *, start: int | None = None, lines: int | None = None) -> Passage:
        """Return lines of a note or of a conversation. See `Memory.read`."""
        return self._call("read", Passage, path=_path(path), start=start, lines=lines)

    def list(
        self,
        *,
        source: str | None = "memory",
        path: Path | None = None,
        since: When | None = None,
        until: When | None = None,
        tags: str | Iterable[str] = (),
        order: Literal["time", "change"] = "time",
        max_results: int = 50,
        offset: int = 0,
        progress: Progress | None = None,
    ) -> Listing:
        """Return notes, or notes and conversations, newest first. See `Memory.list`."""
        filters = {"path": _path(path), "since": _when(since), "until": _when(until), "tags": _texts(tags)}
        page = {"order": order, "max_results": max_results, "offset": offset}
        return self._call("list", Listing, source=source or "all", **filters, **page)

    def status(self) -> Status:
        """Return the state of the index and its problems."""
        return self._call("status", Status)


class _Part:
    def __init__(self, connection: ServerConnection) -> None:
        self._call = connection.call


class RemoteNotes(_Part):
    """Tags and links, as `Memory.notes` has them."""

    def tags(self, *, progress: Progress | None = None) -> TagList:
        return self._call("notes/tags", TagList)

    def links(self, note: Path, *, progress: Progress | None = None) -> NoteLinks:
        return self._call("notes/links", NoteLinks, note=_path(note))

    def broken_links(self, *, progress: Progress | None = None) -> BrokenLinks:
        return self._call("notes/broken_links", BrokenLinks)

    def name_nearest(self, name: str) -> str:
        return self._call("notes/name_nearest", str, name=name)

    def find_project(self, folder: Path = ".") -> str | None:
        """Return the project that a folder of this machine belongs to. The server is asked if it is in a repository."""
        keys = [*repository_keys(os.fspath(folder))]
        return (self._call("notes/find_project", str, repository=keys) or None) if keys else None


class RemoteHistory(_Part):
    """Changes of the notes and undo, as `Memory.history` has them."""

    def changes(
        self,
        note: Path | None = None,
        *,
        since: When | None = None,
        by: str | None = None,
        session: str | None = None,
        max_results: int | None = None,
    ) -> tuple[NoteChange, ...]:
        filters = {"since": _when(since), "by": by, "session": session, "max_results": max_results}
        return self._call("history/changes", tuple[NoteChange, ...], note=_path(note), **filters)

    def find_changes(self, ids: Sequence[str]) -> Sequence[NoteChange]:
        return self._call("history/find_changes", tuple[NoteChange, ...], ids=list(ids))

    def diff(self, change: NoteChange) -> str:
        return self._call("history/diff", str, change=change.id)

    def undo(
        self,
        change: str | Iterable[str] | None = None,
        *,
        session: str | None = None,
        since: When | None = None,
        by: str | None = None,
        author: Author | None = None,
        why: str = "",
        dry_run: bool = False,
    ) -> UndoResult:
        ids = None if change is None else _texts(change)
        filters = {"session": session, "since": _when(since), "by": by, "why": why, "dry_run": dry_run}
        return self._call("history/undo", UndoResult, change=ids, **filters)


class RemoteReview(_Part):
    """Writes of agents that wait for a person, as `Memory.review` has them."""

    def list(self, *, session: str | None = None) -> ReviewList:
        return self._call("review/list", ReviewList, session=session)

    def get(self, item_id: str) -> ReviewItem:
        return self._call("review/get", ReviewItem, item_id=item_id)

    def preview(self, item: ReviewItem) -> ReviewPreview:
        return self._call("review/preview", ReviewPreview, item_id=item.id)

    def accept(self, item_id: str, *, text: str | None = None, author: Author | None = None) -> ReviewResult:
        return self._call("review/accept", ReviewResult, item_id=item_id, text=text)

    def reject(self, item_id: str, *, author: Author | None = None) -> ReviewResult:
        return self._call("review/reject", ReviewResult, item_id=item_id)


class RemoteForgetting(_Part):
    """Removal for good, as `Memory.forgetting` has it. The server plans again before it removes what was chosen."""

    def __init__(self, connection: ServerConnection) -> None:
        super().__init__(connection)
        self._shown: list[tuple[ForgetPlan, dict[str, Any]]] = []

    def plan(
        self,
        query: str | None = None,
        *,
        session: str | None = None,
        person: str | None = None,
        before: When | None = None,
        allow_all: bool = False,
    ) -> ForgetPlan:
        from kept.forgetting.plan import ForgetPlan

        what: dict[str, Any] = {"session": session, "person": person, "before": _when(before), "allow_all": allow_all}
        what["query"] = query
        plan: ForgetPlan = self._call("forgetting/plan", ForgetPlan, **what)
        self._shown.append((plan, what))
        return plan

    def apply(self, plan: ForgetPlan) -> ForgetReceipt:
        from kept.forgetting.receipt import ForgetReceipt

        chosen = {*plan.places, *plan.kept}
        shown, what = next(pair for pair in reversed(self._shown) if chosen.issubset(pair[0].options))
        numbers = [number for number, place in enumerate(shown.options, 1) if place in plan.places]
        places = ",".join(map(str, numbers)) or "none"
        return self._call("forgetting/apply", ForgetReceipt, token=shown.token, places=places, **what)


def _path(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _texts(texts: str | Iterable[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _when(when: When | None) -> str | None:
    """Return a time as text that the server reads the same way, wherever it is."""
    if isinstance(when, dt.timedelta):
        when = dt.datetime.now(dt.UTC) - when
    if isinstance(when, dt.datetime):
        return when.astimezone().isoformat()
    return when if when is None or isinstance(when, str) else when.isoformat()
