"""/forget: show every place of something, and forget those that the person chooses, as `kept forget` does.

The proposal is saved in the session as a state: the query, and the token of the plan. So it can be confirmed after a
restart, and is shown anew if a place has changed since. What is forgotten leaves that state too.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from kept.base.limits import clip
from kept.base.wording import plural
from kept.errors import ForgetTooMuch
from kept.forgetting.places import FORGET_STATE
from kept.forgetting.plan import ForgetPlan, Place
from kept.forgetting.receipt import ForgetReceipt
from kept.memory import Memory
from kept.sessions.entries import StateEntry
from kept.sessions.store import SessionStore

SHOWN_PLACES = 20
_PROPOSAL_LIFETIME = dt.timedelta(hours=1)
_SHOWN_CHARS = 500
_NARROWER = "Name it more exactly, or use 'kept forget --all' on the machine itself."


def plan_in_chat(memory: Memory, query: str) -> ForgetPlan:
    """Plan as the person of a conversation, who changes files of a system prompt only as the owner."""
    viewer = memory.viewer
    try:
        return memory.forgetting.plan(query, by_tool=viewer is not None and not viewer.is_owner)
    except ForgetTooMuch as exc:
        raise ForgetTooMuch(exc.message, hint=_NARROWER) from None


def save_proposal(sessions: SessionStore, session_id: str, query: str, plan: ForgetPlan) -> None:
    asked = {"asked": sessions.clock.now().isoformat(), "query": query}
    value = {**asked, "token": plan.token, "count": len(plan.options)}
    sessions.append(session_id, StateEntry(FORGET_STATE, value))


def find_proposal(sessions: SessionStore, session_id: str) -> dict[str, Any] | None:
    """Return the proposal of the last hour that was neither confirmed nor declined."""
    value: Any = sessions.get(session_id).state.get(FORGET_STATE)
    try:
        asked = dt.datetime.fromisoformat(value["asked"])
        is_valid = isinstance(value["query"], str) and sessions.clock.now() - asked <= _PROPOSAL_LIFETIME
        return value if is_valid and value["token"] and int(value["count"]) else None
    except (TypeError, KeyError, ValueError, OverflowError):
        return None  # no proposal, or a damaged one


def is_choice(answer: str, proposal: dict[str, Any]) -> bool:
    """Return whether a text is numbers of places that were shown."""
    numbers = answer.replace(",", " ").split()
    return all(number.isdecimal() and 0 < int(number) <= int(proposal["count"]) for number in numbers)


def drop_proposal(sessions: SessionStore, session_id: str) -> None:
    sessions.append(session_id, StateEntry(FORGET_STATE, None))


# texts


def describe_plan(plan: ForgetPlan) -> str:
    if not plan.options:
        return "\n\n".join(["No note and no conversation says that.", *_remarks(plan)])
    if plan.places:
        lead, end = "This would go:", "/forget yes removes it, /forget 1 3 only these; /forget no keeps it."
    else:
        lead, end = "Nothing says exactly that. Do you mean one of these?", "/forget 1 removes it; /forget no keeps it."
    if plan.places and plan.candidates:
        lead = f"These would go. The last {len(plan.candidates):,} may be meant too, and go only by their number:"
    places = [f"{number}. {_describe_place(place)}" for number, place in enumerate(plan.options[:SHOWN_PLACES], 1)]
    if len(plan.options) > SHOWN_PLACES:
        places.append(f"and {len(plan.options) - SHOWN_PLACES} more places.")
    return "\n\n".join([lead, *places, end, *_remarks(plan)])


def _describe_place(place: Place) -> str:
    whole = f" (the whole {place.kind})" if place.whole else ""
    new = f"\n→ {clip(place.new, _SHOWN_CHARS)}" if place.new else ""
    return f"{place.citation}{whole}\n{clip(place.text, _SHOWN_CHARS)}{new}"


def _remarks(plan: ForgetPlan) -> list[str]:
    if not plan.unreachable:
        return []
    return [f"These are not changed. Edit or delete them yourself: {', '.join(plan.unreachable)}."]


def describe_receipt(receipt: ForgetReceipt, count: int, *, is_private: bool = False) -> str:
    """Describe a forget. If ``is_private``, the person sees only part of the memory; the rest is not mentioned."""
    if receipt.kept:
        search = f"{len(receipt.kept)} more were not chosen, and are as they were."
    elif receipt.left:
        search = f"It is still in {', '.join(file.path for file in receipt.left[:5])}."
    else:
        search = "Nothing of it is left in what you see." if is_private else "Nothing of it is left."
    lines = [f"Forgotten: {plural(count, 'passage')}. {search} Receipt {receipt.id}."]
    lines += (f"{citation}: changed since then, and left as it is." for citation in receipt.changed)
    if not receipt.is_finished:
        lines.append("A part could not be done now; the next 'kept' command finishes it.")
    return "\n".join(lines)
