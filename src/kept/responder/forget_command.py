"""/forget: show every place of something, and forget it after a confirmation, as `kept forget` does.

The proposal is saved in the session as a state: the query, and the hash of each place. So it can be confirmed after a
restart, and is shown anew if a place has changed since. What is forgotten leaves that state too.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from kept.errors import ForgetTooMuch
from kept.forgetting.needles import Matcher
from kept.forgetting.plan import ForgetOrder, ForgetPlan, Place, ScrubResult
from kept.forgetting.receipt import ForgetReceipt
from kept.forgetting.transcript_places import FORGET_STATE
from kept.limits import clip
from kept.memory import Memory
from kept.responder.inbox import Inbox
from kept.sessions.entries import StateEntry
from kept.sessions.store import SessionStore

SHOWN_PLACES = 20
_PROPOSAL_LIFETIME = dt.timedelta(hours=1)
_SHOWN_CHARS = 500
_NARROWER = "Name it more exactly, or use 'kept forget --all' on the machine itself."


def plan_in_chat(memory: Memory, query: str) -> ForgetPlan:
    try:
        return memory.forgetting.plan(query)
    except ForgetTooMuch as exc:
        raise ForgetTooMuch(exc.message, hint=_NARROWER) from None


def save_proposal(sessions: SessionStore, session_id: str, plan: ForgetPlan) -> None:
    value = {
        "asked": sessions.clock.now().isoformat(),
        "query": plan.request.query,
        "places": _places_of(plan),
    }
    sessions.append(session_id, StateEntry(FORGET_STATE, value))


def find_proposal(sessions: SessionStore, session_id: str) -> dict[str, Any] | None:
    """Return the proposal of the last hour that was neither confirmed nor declined."""
    value: Any = sessions.get(session_id).state.get(FORGET_STATE)
    try:
        asked = dt.datetime.fromisoformat(value["asked"])
        is_valid = isinstance(value["query"], str) and sessions.clock.now() - asked <= _PROPOSAL_LIFETIME
        return value if is_valid and value["places"] else None
    except (TypeError, KeyError, ValueError, OverflowError):
        return None  # no proposal, or a damaged one


def is_as_shown(plan: ForgetPlan, proposal: dict[str, Any]) -> bool:
    """Return whether the places of a plan are those of a proposal, and none has changed."""
    return bool(_places_of(plan) == proposal["places"])


def _places_of(plan: ForgetPlan) -> list[list[str]]:
    return [[place.citation, place.digest] for place in plan.choices]


def drop_proposal(sessions: SessionStore, session_id: str) -> None:
    sessions.append(session_id, StateEntry(FORGET_STATE, None))


class LiveInboxStore:
    """Scrubs the inbox of this process, in memory and on disk."""

    name = "inbox"

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        matcher = Matcher(order.needles)
        return ScrubResult(removed=self._inbox.blank(matcher.matches))


# texts


def describe_plan(plan: ForgetPlan) -> str:
    choices = plan.choices
    if not choices:
        return "\n\n".join(["No note and no conversation says that.", *_remarks(plan)])
    shown = [_describe_place(number, place) for number, place in enumerate(choices[:SHOWN_PLACES], 1)]
    if len(choices) > SHOWN_PLACES:
        shown.append(f"and {len(choices) - SHOWN_PLACES} more places.")
    return "\n\n".join(["This would go:", *shown, "/forget yes removes it; /forget no keeps it.", *_remarks(plan)])


def _describe_place(number: int, place: Place) -> str:
    whole = {"note": " (the whole note)", "session": " (the whole conversation)"}.get(place.kind, "")
    return f"{number}. {place.citation}{whole if place.whole else ''}\n{clip(place.text, _SHOWN_CHARS)}"


def _remarks(plan: ForgetPlan) -> list[str]:
    if not plan.unreachable:
        return []
    return [f"These are not changed. Edit or delete them yourself: {', '.join(plan.unreachable)}."]


def describe_receipt(receipt: ForgetReceipt, count: int, *, is_private: bool = False) -> str:
    """Describe a forget. If ``is_private``, the person sees only part of the memory; the rest is not mentioned."""
    noun = "passage" if count == 1 else "passages"
    if is_private and not receipt.left:
        search = "Nothing of it is left in what you see."
    elif receipt.left:
        names = ", ".join(file.path for file in receipt.left[:5])
        search = f"Searched {receipt.files:,} files: it is still in {names}."
    else:
        search = f"Searched {receipt.files:,} files: nothing of it is left."
    lines = [f"Forgotten: {count} {noun}. {search} Receipt {receipt.id}."]
    lines += (f"{citation}: changed since then, and left as it is." for citation in receipt.changed)
    if not receipt.is_finished:
        lines.append("A part could not be done now; the next 'kept' command finishes it.")
    return "\n".join(lines)
