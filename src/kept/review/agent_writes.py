"""Writes what a model chose, in the way that the settings ask for: at once, listed for review, or only proposed.

A file that is part of a system prompt is never written for a model: its text becomes a proposal in every mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kept.errors import NoteTooLarge, PathRefused
from kept.history.note_change import utc_text
from kept.records import NearFact, Written
from kept.redact import redact
from kept.review.review_item import ItemRecorder, PreviewReady, ReviewItem, proposal_id
from kept.review.review_queue import ReviewQueue, new_listed_item
from kept.workspace.addition import Addition, write_addition
from kept.workspace.change_recorder import Author, ChangeRecorder
from kept.workspace.line_edit import digest_of_lines
from kept.workspace.notes import NoteWriter
from kept.workspace.opened import OpenWorkspace
from kept.workspace.replacement import FactReference
from kept.workspace.workspace import is_persons_own, refusal, require_tool_may_write

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
        recorder = listed = ItemRecorder(queue.folder, new_listed_item(queue, by, why), inner)
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
