"""Records of an inbox: what happened to messages and runs, one step each.

received    a message was accepted
edited      the sender changed its text before it was answered
begun       messages of one conversation became an answer run, in a session; again for each further attempt
preview     a message in the chat shows the reply as it is written; the first part will replace its text
answered    the reply, split into the parts that the channel takes
unpreviewed the message of the preview is gone, and the first part is sent like the others
sending     a part is about to be sent: from now on it may have arrived
unsent      the part was certainly not sent, and will be sent again
sent        the part arrived
unsure      the part may have arrived, or never will: it is not sent again
cancelled   the answer is no longer wanted
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

from kept.agent.events import Inbound
from kept.responder.answer_run import AcceptedMessage, AnswerRun
from kept.responder.inbox_file import RUN_ID, Record
from kept.sessions.blanking import blank_tree


def received_record(message: AcceptedMessage) -> Record:
    inbound = message.inbound
    return {
        "type": "received",
        "channel": message.channel,
        "id": message.id,
        "key": message.key,
        "at": message.accepted_at.isoformat(),
        "text": inbound.text,
        "sender": inbound.sender,
        "timestamp": inbound.timestamp.isoformat() if inbound.timestamp else None,
        "metadata": inbound.metadata,
    }


def read_message(record: Record) -> AcceptedMessage:
    sent_at = dt.datetime.fromisoformat(record["timestamp"]) if record["timestamp"] else None
    inbound = Inbound(record["id"], record["text"], record["sender"], sent_at, record["metadata"])
    accepted_at = dt.datetime.fromisoformat(record["at"])
    return AcceptedMessage(record["channel"], record["id"], record["key"], inbound, accepted_at)


def begun_record(run: AnswerRun) -> Record:
    return {
        "type": "begun",
        RUN_ID: run.id,
        "channel": run.channel,
        "key": run.key,
        "ids": list(run.message_ids),
        "session": run.session_id,
    }


def read_run(record: Record) -> AnswerRun:
    ids, attempts = tuple(record["ids"]), record.get("attempts", 1)
    return AnswerRun(record[RUN_ID], record["channel"], record["key"], ids, record["session"], attempts)


def advance(run: AnswerRun, record: Record) -> AnswerRun:
    """Return a run after the step that a record describes."""
    match record["type"]:
        case "begun":
            return replace(run, attempts=record["attempts"], session_id=record.get("session", run.session_id))
        case "answered":
            return replace(
                run,
                parts=tuple(record["parts"]),
                push=record["push"],
                entry_id=record["entry"],
                error=record["error"],
                details=record.get("details", {}),
            )
        case "cancelled":
            return replace(run, cancelled=True)
        case "preview":
            return replace(run, preview=record["message"])
        case "unpreviewed":
            return replace(run, sending=False, preview=None)
        case "sending":
            return replace(run, sending=True)
        case "unsent":
            return replace(run, sending=False)
        case "sent":
            return replace(run, sending=False, settled=record["part"] + 1)
        case "unsure" if record["part"] >= run.settled:  # not recorded twice
            unconfirmed = (*run.unconfirmed_parts, (record["part"], record.get("reason", "")))
            return replace(run, sending=False, settled=record["part"] + 1, unconfirmed_parts=unconfirmed)
        case _:
            return run


def run_records(run: AnswerRun) -> list[Record]:
    """Return the fewest records that lead to the present state of a run."""
    records: list[Record] = [{**begun_record(run), "attempts": run.attempts}]
    if run.preview is not None:
        records.append({"type": "preview", "message": dict(run.preview)})
    if run.parts is not None:
        answered = {"parts": list(run.parts), "push": run.push, "entry": run.entry_id, "error": run.error}
        records.append({"type": "answered", **answered, **({"details": dict(run.details)} if run.details else {})})
    if run.cancelled:
        records.append({"type": "cancelled"})
    records += ({"type": "unsure", "part": part, "reason": reason} for part, reason in run.unconfirmed_parts)
    if run.settled:
        records.append({"type": "sent", "part": run.settled - 1})
    if run.sending:
        records.append({"type": "sending", "part": run.settled})
    return [{**record, RUN_ID: run.id} for record in records]


def with_text(message: AcceptedMessage, text: str) -> AcceptedMessage:
    return replace(message, inbound=replace(message.inbound, text=text))


def blank_message(message: AcceptedMessage, matches: Callable[[str], bool]) -> AcceptedMessage:
    inbound = message.inbound
    texts = {"text": inbound.text, "sender": inbound.sender, "metadata": dict(inbound.metadata or {})}
    return replace(message, inbound=replace(inbound, **blank_tree(texts, matches)))


def blank_run(run: AnswerRun, matches: Callable[[str], bool]) -> AnswerRun:
    parts = None if run.parts is None else tuple("" if matches(part) else part for part in run.parts)
    return replace(run, parts=parts, details=blank_tree(dict(run.details), matches))
