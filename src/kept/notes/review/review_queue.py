"""`ReviewQueue`: lists the writes of agents that wait for a person, and accepts, edits or rejects them.

A proposal is written before its file is removed. The file has the id of the change beforehand, so a
process that is killed in between leaves a proposal that is known to be written, and accepting it again only removes it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kept.base.clock import Clock, new_id
from kept.base.records import NearFact, Written
from kept.base.redact import redact
from kept.base.values import frozen
from kept.errors import (
    CitationMismatch,
    EmptyNote,
    KeptError,
    NoteConflict,
    NoteTooLarge,
    PathRefused,
    ReviewFull,
    UsageError,
)
from kept.notes.addition import Addition, write_addition
from kept.notes.change_recorder import Author, ChangeRecorder
from kept.notes.history.note_change import NoteChange, utc_text
from kept.notes.history.note_history import NoteHistory, open_history, open_recorder
from kept.notes.line_edit import digest_of_lines
from kept.notes.note_writer import NoteWriter
from kept.notes.opened import OpenWorkspace
from kept.notes.replacement import FactReference
from kept.notes.review.review_item import (
    ItemRecorder,
    PreviewReady,
    PreviewRecorder,
    ReviewFolder,
    ReviewItem,
    proposal_id,
)
from kept.notes.workspace import is_persons_own, refusal, require_tool_may_write

if TYPE_CHECKING:
    from kept.config import Config
    from kept.notes.history.note_history import HistoryRecorder
    from kept.notes.workspace import Workspace

ReviewAction = Literal["accepted", "edited", "rejected"]
_ACCEPTED = "accepted by a person"
_EDITED = "edited and accepted by a person"


MAX_WAITING = 1_000
"""Number of changes that may wait for review."""


@frozen
class ReviewList:
    """Items that wait, oldest first. ``degraded`` names files that cannot be read."""

    items: tuple[ReviewItem, ...]
    degraded: tuple[str, ...] = ()


@frozen
class ReviewPreview:
    diff: str
    """What a proposal would change, or what a listed write changed, as a unified diff."""
    notice: str = ""
    is_conflict: bool = False
    """True if the proposal cannot be accepted as it is, because its note has changed. ``notice`` says why."""


@frozen
class ReviewResult:
    item: ReviewItem
    action: ReviewAction
    changes: tuple[NoteChange, ...] = ()
    """Changes that the decision made; none if a listed write was accepted."""
    degraded: tuple[str, ...] = ()


class TimeOfProposal:
    """Clock that always returns the time of a proposal: an entry of a log goes to the day on which it was proposed."""

    def __init__(self, item: ReviewItem) -> None:
        self._when = item.when

    def now(self) -> dt.datetime:
        return self._when

    def time_ns(self) -> int:
        return int(self._when.timestamp() * 1_000_000_000)


class ReviewQueue:
    """Writes of agents that wait for a person, in one workspace. Several processes may review at once."""

    def __init__(self, config: Config, workspace: Workspace, clock: Clock) -> None:
        self.settings = config.agent.review
        self.workspace = workspace
        self.clock = clock
        self.max_bytes = config.agent.memory_search.max_file_bytes
        self.folder = ReviewFolder(workspace)
        self._config = config

    @property
    def history(self) -> NoteHistory:
        return open_history(self._config, self.workspace, self.clock)

    def recorder(self, by: Author, *, why: str = "") -> HistoryRecorder | None:
        """Return the recorder for changes by an author, or None if the history is off."""
        return open_recorder(self._config, self.workspace, self.clock, by, why=why)

    # reading

    def count(self) -> int:
        """Return how many items wait."""
        return len(self.folder.ids())

    def list(self, *, session: str | None = None) -> ReviewList:
        """Return all items, or those of a session, given by its id or the beginning of it."""
        items: list[ReviewItem] = []
        degraded: list[str] = []
        for item_id in self.folder.ids():
            try:
                item = self.folder.find(item_id)
            except ValueError as exc:
                degraded.append(f".kept/proposals/{item_id}.json is damaged: {exc}.")
                continue
            if item is not None and (session is None or (item.by.session or "").startswith(session)):
                items.append(item)
        return ReviewList(tuple(sorted(items, key=lambda item: (item.time, item.id))), tuple(degraded))

    def get(self, item_id: str) -> ReviewItem:
        """Return the item with this id, or with the only id that begins so. Raise NotFound."""
        return self.folder.get(item_id)

    def preview(self, item: ReviewItem) -> ReviewPreview:
        """Return what an item changes. Nothing is written."""
        from kept.notes.history.line_changes import diff_versions

        if item.addition is None:
            changes = self._find_changes(item)
            diff = "".join(self.history.diff(change) for change in reversed(changes))
            if changes and all(change.is_undone for change in changes):
                return ReviewPreview(diff, "This change was taken back already.")
            return ReviewPreview(diff, "" if changes else "The history lacks this change.")
        if self._is_written(item):
            return ReviewPreview("", "This was written already. Accepting it only removes it from this list.")
        try:
            written = self.try_addition(item.addition, clock=TimeOfProposal(item))
        except PreviewReady as ready:
            return ReviewPreview(diff_versions(ready.before, ready.after, ready.path, ready.path))
        except KeptError as exc:
            return ReviewPreview("", exc.message, is_conflict=True)
        return ReviewPreview("", f"{written.citation} says the same already.")

    def try_addition(
        self, addition: Addition, *, clock: Clock, by_tool: bool = False, near: Iterable[NearFact] = ()
    ) -> Written:
        """Raise PreviewReady with what an addition would write. Return the lines that say the same already."""
        writer = NoteWriter(self.workspace, clock, self.max_bytes, by_tool, PreviewRecorder())
        return write_addition(writer, addition, near)

    # adding

    def require_room(self) -> None:
        """Raise ReviewFull if too many items wait."""
        if self.count() >= MAX_WAITING:
            raise ReviewFull(f"{MAX_WAITING:,} changes wait for review, and no more are accepted.")

    def put_proposal(self, item: ReviewItem) -> None:
        """Store a proposal, unless the same one waits already."""
        with self.folder.locked():
            if item.id not in self.folder.ids():
                self.require_room()
                self.folder.put(item)

    # deciding

    def accept(self, item_id: str, *, text: str | None = None, author: Author | None = None) -> ReviewResult:
        """Write a proposal, or take a listed write off the list. ``text`` takes the place of that of a proposal.

        Raise NoteConflict, and change nothing, if the lines that it replaces have changed meanwhile.
        """
        person = author or Author(tool="python")
        if text is not None:
            text = text.strip("\n")
            if not text.strip():
                raise EmptyNote("The text is empty.", hint="Reject the change instead.")
        with self.folder.locked():
            item = self.get(item_id)
            if item.addition is not None:
                result = self._accept_proposal(item, item.addition, text, person)
            elif text is not None:
                raise UsageError(f"This is in {item.path} already.", hint="Edit the note, then accept the change.")
            else:
                result = ReviewResult(item, "accepted")
            self.folder.remove(item)
        return result

    def reject(self, item_id: str, *, author: Author | None = None, why: str = "") -> ReviewResult:
        """Drop a proposal, or take a listed write back. Raise NoteConflict if later changes touched the same lines."""
        from kept.notes.history.undo import undo_changes

        with self.folder.locked():
            item = self.get(item_id)
            result = ReviewResult(item, "rejected")
            if item.state == "written" or (self._is_written(item)):
                changes = self._find_changes(item)
                if not changes:
                    raise _not_in_history(item)
                undone = undo_changes(
                    self.history,
                    [change for change in changes if not change.is_undone],
                    author=author or Author(tool="python"),
                    max_bytes=self.max_bytes,
                    why=why or "rejected by a person",
                )
                result = replace(result, changes=undone.recorded, degraded=undone.degraded)
            self.folder.remove(item)
        return result

    def _accept_proposal(self, item: ReviewItem, addition: Addition, text: str | None, person: Author) -> ReviewResult:
        if self._is_written(item):
            return ReviewResult(item, "accepted")
        is_edited = text is not None and text != addition.text
        if text is not None:
            addition = replace(addition, text=text)
        reason = _EDITED if is_edited else _ACCEPTED
        inner = self.recorder(
            replace(item.by, person=person.person), why=f"{reason}: {item.why}" if item.why else reason
        )
        recorder = ItemRecorder(self.folder, replace(item, changes=()), inner)
        try:
            writer = NoteWriter(self.workspace, TimeOfProposal(item), self.max_bytes, recorder=recorder)
            write_addition(writer, addition)
        except CitationMismatch as exc:
            raise NoteConflict(exc.message, hint="Nothing was changed. Reject it, or edit the note.") from exc
        changes = tuple(inner.changes) if inner else ()
        return ReviewResult(item, "edited" if is_edited else "accepted", changes, tuple(recorder.notices))

    # what is in the notes

    def _find_changes(self, item: ReviewItem) -> Sequence[NoteChange]:
        """Return the changes of an item, newest first."""
        if not item.changes:
            return []
        return [change for change in self.history.iter_changes(since=item.time) if change.id in item.changes]

    def _is_written(self, item: ReviewItem) -> bool:
        """Return whether a proposal is in its note, although a process was killed while it was accepted."""
        if not item.changes or item.addition is None:
            return False
        try:
            with OpenWorkspace(self.workspace) as opened:
                note = opened.read(self.workspace.locate(item.path), max_bytes=self.max_bytes)
        except KeptError:
            return bool(self._find_changes(item))
        return item.addition.text.strip() in note.text or bool(self._find_changes(item))


def _not_in_history(item: ReviewItem) -> NoteConflict:
    hint = "Edit the note, then accept the change to remove it from this list."
    return NoteConflict(f"{item.path}: the history lacks this change, so it cannot be taken back.", hint=hint)


# writes of agents, in the way that the settings ask for: at once, listed for review, or only proposed

MAX_PROPOSAL_CHARS = 200_000


def write_for_agent(
    queue: ReviewQueue, addition: Addition, *, near: Iterable[NearFact], by: Author, why: str = ""
) -> Written:
    """Write, list or propose an addition. `Written.is_proposed` is True if the note does not have it yet."""
    mode = queue.settings.agent_writes
    inner = queue.recorder(by, why=why)
    # Without a history, a listed write could not be taken back.
    if _is_persons_own(addition) or mode == "proposed" or (mode == "listed" and inner is None):
        return propose(queue, addition, near=near, by=by, why=why)
    recorder: ChangeRecorder | None = inner
    listed = None
    if mode == "listed":
        queue.require_room()
        item = ReviewItem(new_id(), "written", utc_text(queue.clock.now()), "", by, why)  # its note is not known yet
        recorder = listed = ItemRecorder(queue.folder, item, inner)
    writer = NoteWriter(queue.workspace, queue.clock, queue.max_bytes, by_tool=True, recorder=recorder)
    written = write_addition(writer, addition, near)
    return replace(written, review=listed.item.id) if listed and listed.item.changes else written


def propose(
    queue: ReviewQueue, addition: Addition, *, near: Iterable[NearFact] = (), by: Author, why: str = ""
) -> Written:
    """Store a proposal. Raise the error that writing it would raise. A mere repetition is not proposed."""
    if len(addition.text) > MAX_PROPOSAL_CHARS:
        raise NoteTooLarge(f"The text has more than the limit of {MAX_PROPOSAL_CHARS:,} characters for a proposal.")
    is_own = _is_persons_own(addition)
    addition = replace(addition, text=redact(addition.text), replaces=_with_digest(queue, addition.replaces))
    try:
        return queue.try_addition(addition, clock=queue.clock, by_tool=not is_own, near=near)
    except PreviewReady as ready:
        path = ready.path
    except PathRefused:
        if is_own:
            raise refusal(addition.to or addition.replaces or "") from None
        raise
    if is_own and not is_persons_own(path):
        require_tool_may_write(queue.workspace, queue.workspace.locate(path), path)
    item = ReviewItem(
        proposal_id(addition), "proposed", utc_text(queue.clock.now()), path, by, redact(why), addition=addition
    )
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
    workspace = queue.workspace
    with OpenWorkspace(workspace) as opened:
        note = opened.read(workspace.locate(reference.path), max_bytes=queue.max_bytes)
    lines = note.text.split("\n")[reference.first_line - 1 : reference.last_line]
    return f"{replaces.strip()}@{digest_of_lines(chr(10).join(lines))}"
