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
from kept.forgetting.plan import ForgetPlan
from kept.forgetting.receipt import ForgetReceipt
from kept.memory import Memory
from kept.sessions.entries import StateEntry
from kept.sessions.store import SessionStore

SHOWN_PLACES = 20
_PROPOSAL_LIFETIME = dt.timedelta(hours=1)
_SHOWN_CHARS = 500
_ANSWERS = {"yes": "all", "all": "all", "no": "none", "none": "none"}
"""Answers to a proposal, as `ForgetPlan.choose` reads them."""
_NARROWER = "Name it more exactly, or use 'kept forget --all' on the machine itself."


def plan_in_chat(memory: Memory, query: str) -> ForgetPlan:
    """Plan as the person of a conversation, who changes files of a system prompt only as the owner."""
    viewer = memory.viewer
    try:
        return memory.forgetting.plan(query, by_tool=viewer is not None and not viewer.is_owner)
    except ForgetTooMuch as exc:
        raise ForgetTooMuch(exc.message, hint=_NARROWER) from None


def answer_forget(memory: Memory, sessions: SessionStore, session_id: str, query: str) -> str:
    """Return the reply to /forget: the places of something, or what became of a choice among those that were shown."""
    if not query:
        return "Say what to forget: /forget QUERY. You will see what would go before anything is removed."
    proposal = _find_proposal(sessions, session_id)
    answer = _ANSWERS.get(query.lower(), "")
    if not answer and proposal is not None:
        numbers = query.replace(",", " ").split()
        shown = range(1, int(proposal["count"]) + 1)
        answer = query if all(number.isdecimal() and int(number) in shown for number in numbers) else ""
    if not answer:
        return _propose(sessions, session_id, query, plan_in_chat(memory, query))
    if proposal is None:
        return "There is nothing to confirm. Start with /forget QUERY."
    if answer == "none":
        sessions.append(session_id, StateEntry(FORGET_STATE, None))
        return "Nothing was forgotten."
    plan = plan_in_chat(memory, proposal["query"])
    if plan.token != proposal["token"]:
        proposed = _propose(sessions, session_id, proposal["query"], plan)
        return f"It has changed since then, and nothing was forgotten.\n\n{proposed}"
    if answer == "all" and not plan.places:
        return f"Nothing was forgotten: name the numbers.\n\n{describe_plan(plan)}"
    sessions.append(session_id, StateEntry(FORGET_STATE, None))
    chosen = plan.choose(answer)
    receipt = memory.forgetting.apply(chosen)
    return describe_receipt(receipt, len(chosen.places), is_private=memory.viewer is not None)


def _propose(sessions: SessionStore, session_id: str, query: str, plan: ForgetPlan) -> str:
    if plan.options:
        asked = {"asked": sessions.clock.now().isoformat(), "query": query}
        value = {**asked, "token": plan.token, "count": len(plan.options)}
        sessions.append(session_id, StateEntry(FORGET_STATE, value))
    return describe_plan(plan)


def _find_proposal(sessions: SessionStore, session_id: str) -> dict[str, Any] | None:
    """Return the proposal of the last hour that was neither confirmed nor declined."""
    value: Any = sessions.get(session_id).state.get(FORGET_STATE)
    try:
        asked = dt.datetime.fromisoformat(value["asked"])
        is_valid = isinstance(value["query"], str) and sessions.clock.now() - asked <= _PROPOSAL_LIFETIME
        return value if is_valid and value["token"] and int(value["count"]) else None
    except (TypeError, KeyError, ValueError, OverflowError):
        return None  # no proposal, or a damaged one


# texts


def describe_plan(plan: ForgetPlan) -> str:
    paths = ", ".join(plan.unreachable)
    remarks = [f"These are not changed. Edit or delete them yourself: {paths}."] if paths else []
    if not plan.options:
        return "\n\n".join(["No note and no conversation says that.", *remarks])
    if plan.places:
        lead, end = "This would go:", "/forget yes removes it, /forget 1 3 only these; /forget no keeps it."
    else:
        lead, end = "Nothing says exactly that. Do you mean one of these?", "/forget 1 removes it; /forget no keeps it."
    if plan.places and plan.candidates:
        lead = f"These would go. The last {len(plan.candidates):,} may be meant too, and go only by their number:"
    places = []
    for number, place in enumerate(plan.options[:SHOWN_PLACES], 1):
        whole = f" (the whole {place.kind})" if place.whole else ""
        new = f"\n→ {clip(place.new, _SHOWN_CHARS)}" if place.new else ""
        places.append(f"{number}. {place.citation}{whole}\n{clip(place.text, _SHOWN_CHARS)}{new}")
    if len(plan.options) > SHOWN_PLACES:
        places.append(f"and {len(plan.options) - SHOWN_PLACES} more places.")
    return "\n\n".join([lead, *places, end, *remarks])


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
