"""Review: what agents propose to write. A person accepts, edits or rejects it."""

from __future__ import annotations

from starlette.responses import Response

from kept.errors import KeptError, UsageError
from kept.notes.review_queue import ReviewResult
from kept.notes.workspace import is_persons_own
from kept.server.web.visit import Page, Screen, Visit

PER_PAGE = 20
_DONE = {"accepted": "Accepted", "edited": "Edited and accepted", "rejected": "Rejected"}


def show_review(visit: Visit) -> Response:
    """Show the changes that wait, oldest first, or those of one conversation."""
    queue = visit.memory.review
    session = visit.query.get("session", "").strip()
    waiting = queue.list(session=session or None)
    first = (visit.page - 1) * PER_PAGE
    return visit.render(
        "review.html",
        items=waiting.items[first : first + PER_PAGE],
        preview_of=queue.preview,
        instructs=is_persons_own,
        waiting=len(waiting.items),
        degraded=waiting.degraded,
        session=session,
        has_next=len(waiting.items) > first + PER_PAGE,
        agent_writes=queue.settings.agent_writes,
    )


def decide(visit: Visit) -> Response:
    result = _decide(visit, visit.form.get("item", ""))
    degraded = f". {' '.join(result.degraded)}" if result.degraded else ""
    return visit.redirect(visit.back("/review"), notice=f"{_DONE[result.action]}: {result.item.path}{degraded}")


def decide_all(visit: Visit) -> Response:
    """Accept or reject all changes that were shown. One that is in conflict stays on the list."""
    ids, rejects = visit.form.get("items", "").split(), visit.form.get("action") == "reject"
    done, conflicts = 0, []
    for item_id in reversed(ids) if rejects else ids:  # an older change may be in the way of a newer one's undo
        try:
            _decide(visit, item_id)
            done += 1
        except KeptError as exc:
            conflicts.append(exc.message)
    left = f" {len(conflicts)} left: {conflicts[0]}" if conflicts else ""
    return visit.redirect("/review", notice=f"{done} {'rejected' if rejects else 'accepted'}.{left}")


def _decide(visit: Visit, item_id: str) -> ReviewResult:
    queue, author = visit.memory.review, visit.site.author
    match visit.form.get("action"):
        case "accept":
            return queue.accept(item_id, author=author)
        case "edit":
            return queue.accept(item_id, text=visit.text, author=author)
        case "reject":
            return queue.reject(item_id, author=author)
    raise UsageError("The form says neither accept, edit nor reject.", hint="Use the buttons.")


SCREEN = Screen(
    name="review",
    label="Review",
    home="/review",
    pages=(
        Page("/review", show_review, "review changes"),
        Page("/review/decide", decide, "review changes", ("POST",)),
        Page("/review/decide-all", decide_all, "review changes", ("POST",)),
    ),
    key="r",
)
