"""Writes of agents that wait for a person: proposals, which are not written yet.

    .kept/proposals/ID.json     one item that waits, in the workspace

An item is plain JSON. When a person has decided, it is removed, in the commit that writes it. Searches do not find it.
`ReviewQueue` lists items, and accepts, edits or rejects them; `write_for_agent` writes what a model chose.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kept.base.clock import Clock
from kept.base.digest import digest_bytes
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import utf8_safe
from kept.base.records import Written
from kept.base.redact import redact
from kept.base.values import frozen
from kept.errors import (
    CitationMismatch,
    DocumentNotFound,
    EmptyNote,
    KeptError,
    NoteConflict,
    NoteTooLarge,
    NotFound,
    PathRefused,
    ReviewFull,
    StorageConflict,
    WorkspaceError,
)
from kept.notes.history.note_history import Author, HistoryRecorder, NoteChange, open_recorder, utc_text
from kept.notes.line_edit import digest_of_lines
from kept.notes.note_writer import Addition, NoteWriter
from kept.notes.replacement import FactReference
from kept.notes.workspace import is_persons_own, refusal, require_tool_may_write
from kept.storage.contract import ABSENT, Change, Remove, Write

if TYPE_CHECKING:
    from kept.config import Config
    from kept.notes.workspace import Workspace

ReviewAction = Literal["accepted", "edited", "rejected"]
PROPOSALS = ".kept/proposals/"
MAX_WAITING = 1_000
"""Number of changes that may wait for review."""
MAX_ITEM_BYTES = 4_000_000
MAX_PROPOSAL_CHARS = 200_000
_ID_CHARS, _MIN_PREFIX = 16, 4
_ITEM_PATH = rf"{re.escape(PROPOSALS)}([0-9a-f]{{{_ID_CHARS}}})\.json"
_ACCEPTED = "accepted by a person"
_EDITED = "edited and accepted by a person"


@frozen
class ReviewItem:
    id: str
    time: str
    """UTC, such as 2026-11-16T09:30:00.000Z."""
    path: str
    by: Author
    addition: Addition
    """What is proposed."""
    why: str = ""

    @property
    def when(self) -> dt.datetime:
        """Return when the agent wrote, in the local time zone."""
        return dt.datetime.fromisoformat(self.time).astimezone()


def proposal_id(addition: Addition) -> str:
    """Return the id of a proposal: the same text for the same note is the same proposal."""
    fields = [addition.text, addition.to, addition.replaces, addition.project, addition.private]
    return digest_bytes(json.dumps(fields).encode())[:_ID_CHARS]


def item_path(item_id: str) -> str:
    return f"{PROPOSALS}{item_id}.json"


@frozen
class ReviewList:
    """Items that wait, oldest first. ``degraded`` names files that cannot be read."""

    items: tuple[ReviewItem, ...]
    degraded: tuple[str, ...] = ()


@frozen
class ReviewPreview:
    diff: str
    """What a proposal would change, as a unified diff."""
    notice: str = ""
    is_conflict: bool = False
    """True if the proposal cannot be accepted as it is, because its note has changed. ``notice`` says why."""


@frozen
class ReviewResult:
    item: ReviewItem
    action: ReviewAction
    changes: tuple[NoteChange, ...] = ()
    """Changes that the decision made."""
    degraded: tuple[str, ...] = ()


class ReviewQueue:
    """Writes of agents that wait for a person, in one workspace. Several processes may review at once."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self.settings = config.agent.review
        self.workspace = workspace
        self.clock = clock
        self.max_bytes = config.agent.memory_search.max_file_bytes
        self._config = config

    def recorder(self, by: Author, *, why: str = "") -> HistoryRecorder | None:
        """Return the recorder for changes by an author, or None if the history is off."""
        return open_recorder(self._config, self.workspace, self.clock, by, why=why)

    # reading

    def _ids(self) -> list[str]:
        paths = (info.path for info in self.workspace.storage.documents.list(PROPOSALS))
        return [match[1] for path in paths if (match := re.fullmatch(_ITEM_PATH, path))]

    def _read(self, item_id: str) -> tuple[ReviewItem, Remove]:
        """Return an item, and the change that removes it as it is. Raise ValueError if it is damaged."""
        try:
            document = self.workspace.storage.documents.read(item_path(item_id), max_bytes=MAX_ITEM_BYTES)
            item = from_tree(ReviewItem, json.loads(document.data))
        except NoteTooLarge as exc:
            raise ValueError("the file is too large") from exc
        except RecursionError as exc:
            raise ValueError(str(exc)) from exc
        if item.id != item_id:
            raise ValueError("not an item of a review")
        dt.datetime.fromisoformat(item.time)
        return item, Remove(document.path, document.version)

    def count(self) -> int:
        """Return how many items wait."""
        return len(self._ids())

    def list(self, *, session: str | None = None) -> ReviewList:
        """Return all items, or those of a session, given by its id or the beginning of it."""
        items: list[ReviewItem] = []
        degraded: list[str] = []
        for item_id in self._ids():
            try:
                item, _ = self._read(item_id)
            except DocumentNotFound:
                continue  # somebody has just decided
            except ValueError as exc:
                degraded.append(f"{item_path(item_id)} is damaged: {exc}.")
                continue
            if session is None or (item.by.session or "").startswith(session):
                items.append(item)
        return ReviewList(tuple(sorted(items, key=lambda item: (item.time, item.id))), tuple(degraded))

    def get(self, item_id: str) -> ReviewItem:
        """Return the item with this id, or with the only id that begins so. Raise NotFound."""
        return self._get(item_id)[0]

    def _get(self, prefix: str) -> tuple[ReviewItem, Remove]:
        ids = [item_id for item_id in self._ids() if item_id.startswith(prefix)]
        if len(ids) > 1:
            raise NotFound(f"{len(ids)} ids begin with '{prefix}'.", hint="Write more of the id.")
        try:
            if len(prefix) >= _MIN_PREFIX and ids:
                return self._read(ids[0])
        except DocumentNotFound:
            pass
        except ValueError as exc:
            hint = "Delete the file. No note is affected."
            raise WorkspaceError(f"{item_path(ids[0])} is damaged: {exc}.", hint=hint) from exc
        hint = "'kept review list' shows what waits."
        raise NotFound(f"Nothing with the id '{prefix}' waits for review.", hint=hint)

    def preview(self, item: ReviewItem) -> ReviewPreview:
        """Return what an item changes. Nothing is written."""
        from kept.notes.history.line_changes import diff_versions

        try:
            plan = NoteWriter(self.workspace, item.when, self.max_bytes).plan(item.addition)
        except KeptError as exc:
            return ReviewPreview("", exc.message, is_conflict=True)
        if not plan.edits:
            return ReviewPreview("", f"{plan.written.citation} says the same already.")
        first = plan.edits[0]
        return ReviewPreview(diff_versions(first.before, first.after, first.path, first.path))

    # adding

    def put_proposal(self, item: ReviewItem) -> None:
        """Store a proposal, unless the same one waits already."""
        if item.id in (waiting := self._ids()):
            return
        if len(waiting) >= MAX_WAITING:
            raise ReviewFull(f"{MAX_WAITING:,} changes wait for review, and no more are accepted.")
        # The text is in clear, so that a program that removes words finds it.
        data = utf8_safe(json.dumps(to_tree(item), ensure_ascii=False, indent=1)).encode() + b"\n"
        with suppress(StorageConflict):
            self.workspace.storage.commit([Write(item_path(item.id), data, ABSENT)])

    # deciding

    def accept(self, item_id: str, *, text: str | None = None, author: Author | None = None) -> ReviewResult:
        """Write a proposal. ``text`` takes the place of its own.

        Raise NoteConflict, and change nothing, if the lines that it replaces have changed meanwhile.
        """
        item, removal = self._get(item_id)
        addition = item.addition if text is None else replace(item.addition, text=text.strip("\n"))
        if not addition.text.strip():
            raise EmptyNote("The text is empty.", hint="Reject the change instead.")
        is_edited = addition != item.addition
        reason = _EDITED if is_edited else _ACCEPTED
        person = (author or Author(tool="python")).person
        recorder = self.recorder(replace(item.by, person=person), why=f"{reason}: {item.why}" if item.why else reason)
        writer = NoteWriter(self.workspace, item.when, self.max_bytes, recorder=recorder)

        def removing(_: Sequence[NoteChange]) -> Sequence[Change]:
            self._get(item.id)  # raises if somebody has decided meanwhile
            return [removal]

        try:
            written, changes = writer.commit(addition, also=removing)
        except CitationMismatch as exc:
            raise NoteConflict(exc.message, hint="Nothing was changed. Reject it, or edit the note.") from exc
        return ReviewResult(item, "edited" if is_edited else "accepted", changes, written.degraded)

    def reject(self, item_id: str, *, author: Author | None = None) -> ReviewResult:
        """Drop a proposal. ``author`` is for callers that decide either way: nothing is recorded."""
        item, removal = self._get(item_id)
        self.workspace.storage.commit([removal])
        return ReviewResult(item, "rejected")


# writes of agents, in the way that the settings ask for: at once, or only proposed


def write_for_agent(
    queue: ReviewQueue, addition: Addition, *, similar: Iterable[str], by: Author, why: str = ""
) -> Written:
    """Write or propose an addition. `Written.is_proposed` is True if the note does not have it yet."""
    if _is_persons_own(addition) or queue.settings.agent_writes == "proposed":
        return propose(queue, addition, similar=similar, by=by, why=why)
    recorder = queue.recorder(by, why=why)
    writer = NoteWriter(queue.workspace, queue.clock.now(), queue.max_bytes, by_tool=True, recorder=recorder)
    return writer.commit(addition, similar)[0]


def propose(
    queue: ReviewQueue, addition: Addition, *, similar: Iterable[str] = (), by: Author, why: str = ""
) -> Written:
    """Store a proposal. Raise the error that writing it would raise. A mere repetition is not proposed."""
    if len(addition.text) > MAX_PROPOSAL_CHARS:
        raise NoteTooLarge(f"The text has more than the limit of {MAX_PROPOSAL_CHARS:,} characters for a proposal.")
    is_own, now = _is_persons_own(addition), queue.clock.now()
    addition = replace(addition, text=redact(addition.text), replaces=_with_digest(queue, addition.replaces))
    try:
        plan = NoteWriter(queue.workspace, now, queue.max_bytes, by_tool=not is_own).plan(addition, similar)
    except PathRefused:
        if is_own:
            raise refusal(addition.to or addition.replaces or "") from None
        raise
    if not plan.edits:
        return plan.written
    path = plan.edits[0].path
    if is_own and not is_persons_own(path):
        require_tool_may_write(queue.workspace, path, path)
    item = ReviewItem(proposal_id(addition), utc_text(now), path, by, addition, redact(why))
    queue.put_proposal(item)
    return Written(path, 0, 0, review=item.id, is_proposed=True)


def _is_persons_own(addition: Addition) -> bool:
    if addition.to is not None and is_persons_own(addition.to):
        return True
    return addition.replaces is not None and is_persons_own(FactReference.parse(addition.replaces).path)


def _with_digest(queue: ReviewQueue, replaces: str | None) -> str | None:
    """Return a citation with a digest of its lines, so that a proposal is a conflict if they change."""
    if replaces is None:
        return None
    reference = FactReference.parse(replaces)
    if reference.digest:
        return replaces
    note = queue.workspace.read(queue.workspace.locate(reference.path), max_bytes=queue.max_bytes)
    lines = note.text.split("\n")[reference.first_line - 1 : reference.last_line]
    return f"{replaces.strip()}@{digest_of_lines(chr(10).join(lines))}"
