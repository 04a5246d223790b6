"""Accepted messages and what became of them, on disk: a kill at any moment loses no message and repeats no reply.

The file has one record per step:

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

Only one process has an inbox open for writing: it holds the gateway's lock.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from kept.agent.events import Inbound
from kept.clock import Clock, SystemClock, new_id
from kept.config import Config
from kept.durable import Fault
from kept.errors import MessageConflict, WriteFailed
from kept.limits import is_time
from kept.responder.inbox_file import InboxFile, Record
from kept.sessions.blanking import blank_tree
from kept.sessions.session_key import SessionKey
from kept.values import frozen

T = TypeVar("T")

KEPT_RUNS = 2_000
"""Finished runs that are kept: to fetch a reply later, and to recognise a message that is delivered twice."""
SPARE_RUNS = 500
"""Finished runs beyond `KEPT_RUNS` before the file is rewritten, so that few steps pay for it."""

Name = tuple[str, str]
"""Channel of a message, and its id there."""

log = logging.getLogger(__name__)


@frozen
class AcceptedMessage:
    """Message that was accepted. Its channel and id identify it."""

    channel: str
    id: str
    key: str
    """Full session key of its conversation."""
    inbound: Inbound
    accepted_at: dt.datetime


@frozen
class AnswerRun:
    """Messages that are answered together, and the progress of their answer."""

    id: str
    channel: str
    key: str
    message_ids: tuple[str, ...]
    session_id: str
    """Chosen when the run began, so that it stays the same after a crash."""
    attempts: int = 1
    parts: tuple[str, ...] | None = None
    """Reply. Empty if there is nothing to send, None until there is a reply."""
    push: bool = False
    """True if the parts have to be sent; otherwise they are fetched."""
    entry_id: str | None = None
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Notices, tools and tokens of the answer, for clients."""
    cancelled: bool = False
    sending: bool = False
    """True if the first part that is not settled is being sent."""
    settled: int = 0
    """Number of parts that were sent or given up."""
    unsure: tuple[tuple[int, str], ...] = ()
    """Parts that were given up, with the reason."""
    preview: Mapping[str, Any] | None = None
    """Message that shows the reply as it is written, as the channel describes it."""

    @property
    def edits_next(self) -> bool:
        """True if the next part replaces the text of the preview."""
        return self.preview is not None and self.settled == 0

    @property
    def finished(self) -> bool:
        return self.cancelled or (self.parts is not None and (not self.push or self.settled >= len(self.parts)))

    @property
    def reply(self) -> str | None:
        return "\n\n".join(self.parts) if self.parts else None


def message_status(run: AnswerRun | None) -> str:
    """Return the status of a message, given its run if it has one."""
    if run is None:
        return "waiting"
    if run.cancelled:
        return "cancelled"
    if run.parts is None:
        return "answering"
    return "failed" if run.error else "answered"


class Inbox:
    """Thread-safe. Every change is on disk when its method returns.

    ``read_only`` is for processes without the gateway's lock: the file is read and not changed.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        kept_runs: int = KEPT_RUNS,
        spare_runs: int = SPARE_RUNS,
        read_only: bool = False,
    ) -> None:
        self.clock = clock
        self._kept_runs = kept_runs
        self._spare_runs = spare_runs
        self._lock = threading.Lock()
        self._messages: OrderedDict[Name, AcceptedMessage] = OrderedDict()
        self._run_ids: dict[Name, str] = {}
        self._runs: OrderedDict[str, AnswerRun] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._file = InboxFile(path)
        for record in self._file.read(repair=not read_only):
            self._apply(record)
        if not read_only:
            self._drop_old_runs(spare=0)

    # reading

    def find(self, channel: str, message_id: str) -> AcceptedMessage | None:
        return self._messages.get((channel, message_id))

    def find_run(self, message: AcceptedMessage) -> AnswerRun | None:
        run_id = self._run_ids.get((message.channel, message.id))
        return self._runs[run_id] if run_id else None

    def messages_of(self, run: AnswerRun) -> list[AcceptedMessage]:
        return [self._messages[run.channel, message_id] for message_id in run.message_ids]

    def messages(self) -> list[AcceptedMessage]:
        """Return all messages, in the order of their arrival."""
        with self._lock:
            return list(self._messages.values())

    def waiting(self) -> list[AcceptedMessage]:
        """Return messages that are not part of a run yet."""
        with self._lock:
            return [message for name, message in self._messages.items() if name not in self._run_ids]

    def unfinished(self) -> list[AnswerRun]:
        with self._lock:
            return [run for run in self._runs.values() if not run.finished]

    def unsure(self) -> list[AnswerRun]:
        """Return runs with a part that may not have arrived."""
        with self._lock:
            return [run for run in self._runs.values() if run.unsure]

    @property
    def faults(self) -> list[Fault]:
        """Lines of the file that were skipped, and the reasons."""
        return self._file.faults

    # changing

    def receive(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """Record a message, or return the one that was recorded under its id.

        Raise MessageConflict if that one has another text or conversation.
        """
        with self._lock:
            known = self._messages.get((key.channel, message.id))
            if known is not None:
                return check_same(known, str(key), message.text)
            # A time that could not be read back counts as missing. In memory too, so that a restart changes nothing.
            sent_at = message.timestamp if message.timestamp and is_time(message.timestamp) else None
            inbound = replace(message, timestamp=sent_at, metadata=dict(message.metadata or {}))
            accepted = AcceptedMessage(key.channel, message.id, str(key), inbound, self.clock.now())
            self._file.append(_received_record(accepted))
            self._messages[key.channel, message.id] = accepted
            return accepted

    def edit(self, message: AcceptedMessage, text: str) -> AcceptedMessage:
        """Replace the text of a message."""
        with self._lock:
            name = (message.channel, message.id)
            self._file.append({"type": "edited", "channel": message.channel, "id": message.id, "text": text})
            self._messages[name] = _with_text(self._messages[name], text)
            return self._messages[name]

    def begin(self, messages: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        with self._lock:
            ids = tuple(message.id for message in messages)
            run = AnswerRun(new_id(), messages[0].channel, messages[0].key, ids, session_id)
            self._file.append(_begun_record(run))
            self._add_run(run)
            return run

    def begin_again(self, run: AnswerRun) -> AnswerRun:
        return self._change(run, {"type": "begun", "attempts": run.attempts + 1})

    def answer(
        self,
        run: AnswerRun,
        parts: Sequence[str],
        *,
        push: bool,
        entry_id: str | None,
        error: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> AnswerRun:
        """Record the reply. With ``push``, its parts have to be sent; otherwise clients fetch them."""
        record = {"type": "answered", "parts": list(parts), "push": push, "entry": entry_id, "error": error}
        return self._change(run, {**record, "details": dict(details)} if details else record)

    def cancel(self, run: AnswerRun) -> AnswerRun:
        return self._change(run, {"type": "cancelled"})

    def record_preview(self, run: AnswerRun, message: Mapping[str, Any]) -> AnswerRun:
        """Record the message that shows the reply as it is written."""
        return self._change(run, {"type": "preview", "message": dict(message)})

    def mark(self, run: AnswerRun, state: str, *, reason: str | None = None) -> AnswerRun:
        """Record that the first part that is not settled is 'sending', 'unsent', 'sent', 'unsure' or 'unpreviewed'."""
        return self._change(run, {"type": state, "part": run.settled, **({"reason": reason} if reason else {})})

    def blank(self, matches: Callable[[str], bool]) -> int:
        """Take texts that match out of messages and replies, also on disk. Return how many there were."""
        with self._lock:
            messages = {name: _blank_message(message, matches) for name, message in self._messages.items()}
            runs = {run_id: _blank_run(run, matches) for run_id, run in self._runs.items()}
            count = sum(messages[name] != message for name, message in self._messages.items())
            count += sum(runs[run_id] != run for run_id, run in self._runs.items())
            if count:
                records = [_received_record(message) for message in messages.values()]
                records += (record for run in runs.values() for record in _run_records(run))
                self._file.rewrite(records, erase=True)
                self._messages.update(messages)
                self._runs.update(runs)
            return count

    def _change(self, run: AnswerRun, record: Record) -> AnswerRun:
        with self._lock:
            self._file.append({**record, "turn": run.id})
            changed = self._runs[run.id] = _advance(self._runs[run.id], record)
            if changed.finished:
                self._finished[run.id] = None
                self._drop_old_runs(spare=self._spare_runs)
            return changed

    def _add_run(self, run: AnswerRun) -> None:
        self._runs[run.id] = run
        self._run_ids.update(((run.channel, message_id), run.id) for message_id in run.message_ids)

    def _apply(self, record: Record) -> None:
        """Apply a record that was read from the file."""
        if record["type"] == "received":
            message = _read_message(record)
            self._messages[message.channel, message.id] = message
            return
        if record["type"] == "edited":
            name = (record["channel"], record["id"])
            self._messages[name] = _with_text(self._messages[name], record["text"])
            return
        run_id = record["turn"]
        if run_id not in self._runs:
            self._add_run(_read_run(record))
        else:
            self._runs[run_id] = _advance(self._runs[run_id], record)
        if self._runs[run_id].finished:
            self._finished[run_id] = None

    def _drop_old_runs(self, *, spare: int) -> None:
        """Rewrite the file without the oldest finished runs, once there are more than are kept.

        If that fails, the old runs stay: the step that led here is on disk, and must not be reported as failed.
        """
        if len(self._finished) <= self._kept_runs + spare:
            return
        dropped = set(list(self._finished)[: len(self._finished) - self._kept_runs])
        names = {(self._runs[run_id].channel, name) for run_id in dropped for name in self._runs[run_id].message_ids}
        records = [_received_record(message) for name, message in self._messages.items() if name not in names]
        for run_id, run in self._runs.items():
            if run_id not in dropped:
                records += _run_records(run)
        try:
            self._file.rewrite(records)
        except WriteFailed as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
            return
        for name in names:
            del self._messages[name], self._run_ids[name]
        for run_id in dropped:
            del self._runs[run_id], self._finished[run_id]


def _with_text(message: AcceptedMessage, text: str) -> AcceptedMessage:
    return replace(message, inbound=replace(message.inbound, text=text))


def check_same(message: AcceptedMessage, key: str, text: str) -> AcceptedMessage:
    """Return the message if it has this key and text. Raise MessageConflict otherwise."""
    is_same = message.inbound.text in (text, "")  # a text that was forgotten is empty
    if message.key != key or not is_same:
        raise MessageConflict(f"Another message has the id '{message.id}' already.")
    return message


def _blank_message(message: AcceptedMessage, matches: Callable[[str], bool]) -> AcceptedMessage:
    inbound = message.inbound
    texts = {"text": inbound.text, "sender": inbound.sender, "metadata": dict(inbound.metadata or {})}
    return replace(message, inbound=replace(inbound, **blank_tree(texts, matches)))


def _blank_run(run: AnswerRun, matches: Callable[[str], bool]) -> AnswerRun:
    parts = None if run.parts is None else tuple("" if matches(part) else part for part in run.parts)
    return replace(run, parts=parts, details=blank_tree(dict(run.details), matches))


# records


def _received_record(message: AcceptedMessage) -> Record:
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


def _read_message(record: Record) -> AcceptedMessage:
    sent_at = dt.datetime.fromisoformat(record["timestamp"]) if record["timestamp"] else None
    inbound = Inbound(record["id"], record["text"], record["sender"], sent_at, record["metadata"])
    accepted_at = dt.datetime.fromisoformat(record["at"])
    return AcceptedMessage(record["channel"], record["id"], record["key"], inbound, accepted_at)


def _begun_record(run: AnswerRun) -> Record:
    return {
        "type": "begun",
        "turn": run.id,
        "channel": run.channel,
        "key": run.key,
        "ids": list(run.message_ids),
        "session": run.session_id,
    }


def _read_run(record: Record) -> AnswerRun:
    ids, attempts = tuple(record["ids"]), record.get("attempts", 1)
    return AnswerRun(record["turn"], record["channel"], record["key"], ids, record["session"], attempts)


def _advance(run: AnswerRun, record: Record) -> AnswerRun:
    """Return a run after the step that a record describes."""
    match record["type"]:
        case "begun":
            return replace(run, attempts=record["attempts"])
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
        case "unsure":
            unsure = (*run.unsure, (record["part"], record.get("reason", "")))
            return replace(run, sending=False, settled=record["part"] + 1, unsure=unsure)
        case _:
            return run


def _run_records(run: AnswerRun) -> list[Record]:
    """Return the fewest records that lead to the present state of a run."""
    records: list[Record] = [{**_begun_record(run), "attempts": run.attempts}]
    if run.preview is not None:
        records.append({"type": "preview", "message": dict(run.preview)})
    if run.parts is not None:
        answered = {"parts": list(run.parts), "push": run.push, "entry": run.entry_id, "error": run.error}
        records.append({"type": "answered", **answered, **({"details": dict(run.details)} if run.details else {})})
    if run.cancelled:
        records.append({"type": "cancelled"})
    records += ({"type": "unsure", "part": part, "reason": reason} for part, reason in run.unsure)
    if run.settled:
        records.append({"type": "sent", "part": run.settled - 1})
    if run.sending:
        records.append({"type": "sending", "part": run.settled})
    return [{**record, "turn": run.id} for record in records]


@frozen
class InboxState:
    """Work that a gateway has left, running or not."""

    waiting: int
    """Accepted messages without a reply."""
    undelivered: int
    """Replies that are still to be sent."""
    unsure: int
    """Replies that may not have arrived and are not sent again."""
    damaged: int = 0
    """Lines that cannot be read. The gateway moves them away when it starts."""


def find_inbox_state(config: Config) -> InboxState | None:
    """Return the state of the inbox, or None if no gateway ever ran."""
    path = config.paths.inbox
    if not os.path.exists(path):
        return None
    inbox = Inbox(path, clock=SystemClock(), read_only=True)
    unfinished = inbox.unfinished()
    answering = sum(len(run.message_ids) for run in unfinished if run.parts is None)
    undelivered = sum(run.parts is not None for run in unfinished)
    return InboxState(len(inbox.waiting()) + answering, undelivered, len(inbox.unsure()), len(inbox.faults))
