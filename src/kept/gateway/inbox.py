"""Accepted messages and what became of them: a kill at any moment loses no message and repeats no reply.

An inbox is a log of records, which are checked when they are read. The first record of a run has all of it, each
further one the fields that changed. `Inbox` has the state that they lead to, in memory. Only the process that holds the
lease of the inbox writes to it, so that a gateway which was frozen cannot write beside its successor.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

from kept.agent.events import Inbound
from kept.base.clock import Clock, SystemClock, new_id
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import is_count, is_deep, is_time, strict_json, utf8_safe_tree
from kept.base.values import frozen
from kept.config import Config
from kept.errors import ConfigError, SessionKeyInvalid, WorkspaceError
from kept.sessions.forgotten_text import blank_tree
from kept.sessions.session_key import SessionKey
from kept.storage.contract import Lease, Storage
from kept.storage.open import INBOX, open_agent
from kept.storage.record_store import DAMAGED_ENDING, RecordLog

VERSION = 2
_MAX_DEPTH = 100
_SPOKEN = ("text", "sender", "metadata", "parts", "details")
"""Fields of messages and runs that may say what a person wants forgotten."""

Name = tuple[str, str]
"""Channel of a message, and its id there."""


@frozen
class AcceptedMessage:
    """Message that was accepted. Its channel and id identify it."""

    channel: str
    id: str
    key: str
    """Full session key of its conversation."""
    at: dt.datetime
    text: str
    sender: str | None = None
    timestamp: dt.datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def inbound(self) -> Inbound:
        return Inbound(self.id, self.text, self.sender, self.timestamp, self.metadata)


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
    details: dict[str, Any] = field(default_factory=dict)
    """Notices, tools and tokens of the answer, for clients."""
    cancelled: bool = False
    sending: bool = False
    """True if the first part that is not settled is about to be sent: from then on it may have arrived."""
    settled: int = 0
    """Number of parts that were sent or given up."""
    unconfirmed: int = 0
    """Number of parts that were given up and may have arrived."""

    @property
    def finished(self) -> bool:
        return self.cancelled or (self.parts is not None and (not self.push or self.settled >= len(self.parts)))

    @property
    def reply(self) -> str | None:
        return "\n\n".join(self.parts) if self.parts else None


Value = TypeVar("Value", bound="AcceptedMessage | AnswerRun")


def message_status(run: AnswerRun | None) -> str:
    """Return the status of a message, given its run if it has one."""
    if run is None:
        return "waiting"
    if run.cancelled:
        return "cancelled"
    if run.parts is None:
        return "answering"
    return "failed" if run.error else "answered"


def blanked(value: Value, matches: Callable[[str], bool]) -> Value:
    """Return a message or a run without the texts that match."""
    tree = to_tree(value)
    spoken = {name: blank_tree(tree[name], matches) for name in _SPOKEN if name in tree}
    return from_tree(type(value), {**tree, **spoken})


# records

Record = dict[str, Any]


FIRST_LINE = b'{"type":"inbox","version":%d}' % VERSION


def format_record(value: AcceptedMessage | AnswerRun, changed: Mapping[str, Any] | None = None) -> bytes:
    """Return the record of a message, of a run with all of its steps, or of the fields of a run that changed."""
    kind = "run" if isinstance(value, AnswerRun) else "message"
    # Only what changed: a reply of a hundred kilobytes in 25 parts takes 50 steps, and is stored once.
    fields = to_tree(value) if changed is None else {"id": value.id, **to_tree(changed)}
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def parse_record(
    line: bytes, messages: Mapping[Name, AcceptedMessage], runs: Mapping[str, AnswerRun]
) -> AcceptedMessage | AnswerRun | None:
    """Return the message of a record, or the run after its step, given what earlier records led to; None for the first
    line. Raise ValueError with the fault, and ConfigError if a later version of Kept wrote it."""
    try:
        record = strict_json.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    match record:
        case {"type": "message"} if not is_deep(record, _MAX_DEPTH):
            return _read_message(record)
        case {"type": "run"} if not is_deep(record, _MAX_DEPTH):
            return _read_run(record, messages, runs)
        case {"type": "inbox", "version": version} if is_count(version):
            if version > VERSION:
                hint = "Upgrade Kept; nothing was changed."
                raise ConfigError("inbox.jsonl: written by a later version of Kept.", hint=hint)
            return None
    raise ValueError("it is of no known type")


def _read_message(record: Record) -> AcceptedMessage:
    message = from_tree(AcceptedMessage, record)
    try:
        key = SessionKey.parse_full(message.key)
    except SessionKeyInvalid as exc:
        raise ValueError(exc.message) from None
    if not message.id or str(key) != message.key or key.channel != message.channel:
        raise ValueError("its 'id', 'channel' or 'key' is not what it should be")
    return message


def _read_run(record: Record, messages: Mapping[Name, AcceptedMessage], runs: Mapping[str, AnswerRun]) -> AnswerRun:
    before = runs.get(str(record.get("id")))
    run = from_tree(AnswerRun, record if before is None else {**to_tree(before), **record})
    about = (run.channel, run.key, run.message_ids)
    if before is not None and about != (before.channel, before.key, before.message_ids):
        raise ValueError("it is about other messages than before")
    # Each message once and in one conversation, or a damaged line could answer somebody else.
    known = [messages.get((run.channel, name)) for name in dict.fromkeys(run.message_ids)]
    if not known or len(known) < len(run.message_ids) or any(not each or each.key != run.key for each in known):
        raise ValueError("a message that it is about is not there")
    # A line by hand or by another program: a part that is not there would stop the delivery at every start.
    if not 0 <= run.settled <= len(run.parts or ()) - run.sending:
        raise ValueError("the reply does not have that many parts")
    return run


MAX_FINISHED_RUNS = 2_000
"""Finished runs that an inbox remembers: to fetch a reply later, and to recognise a message that is delivered twice."""
REWRITE_AFTER_RUNS = 500
"""The oldest finished runs are dropped, and the log is rewritten, when there are this many too many."""
_MAX_LOGGED_FAULTS = 10

log = logging.getLogger(__name__)


class Inbox:
    """Thread-safe. Every change is on disk when its method returns. Without a lease, the log is only read."""

    def __init__(self, storage: Storage, *, clock: Clock, lease: Lease | None = None) -> None:
        self.clock = clock
        # Reentrant, and around every change: /forget blanks texts from the thread of a command.
        self._lock = threading.RLock()
        self._messages: OrderedDict[Name, AcceptedMessage] = OrderedDict()
        self._run_ids: dict[Name, str] = {}
        self._runs: OrderedDict[str, AnswerRun] = OrderedDict()
        parse = partial(parse_record, messages=self._messages, runs=self._runs)
        self._log = RecordLog(storage, INBOX, parse, lease=lease)
        if lease is not None:
            # The storage decides about a last line that a kill cut short: now, and not after it was read.
            self._log.append([] if storage.logs.find(INBOX) else [FIRST_LINE])
        for value in self._log.read():
            if value is not None:
                self._apply(value)
        if lease is not None:
            self._set_aside_damaged()
            self._drop_old_runs()

    @property
    def faults(self) -> list[str]:
        """Records that were skipped, and the reasons."""
        return self._log.faults

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

    def unconfirmed_runs(self) -> list[AnswerRun]:
        """Return runs with a part that may not have arrived."""
        with self._lock:
            return [run for run in self._runs.values() if run.unconfirmed]

    # changing

    def receive(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """Record a message with an id that is new on its channel."""
        # What could not be read back is left out. In memory too, so that a restart changes nothing.
        sent_at = message.timestamp if message.timestamp and is_time(message.timestamp) else None
        text, sender, metadata = utf8_safe_tree([message.text, message.sender, dict(message.metadata or {})])
        at = self.clock.now()
        accepted = AcceptedMessage(key.channel, message.id, str(key), at, text, sender, sent_at, metadata)
        return self._commit(accepted)

    def begin(self, messages: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        ids = tuple(message.id for message in messages)
        # The session too: after a crash and a pause, the same messages would otherwise begin another session.
        run = AnswerRun(new_id(), messages[0].channel, messages[0].key, ids, session_id)
        return self._commit(run)

    def change(self, run: AnswerRun, **fields: Any) -> AnswerRun:
        """Record the next step of a run, such as its reply: these fields change."""
        fields = utf8_safe_tree(fields)
        with self._lock:
            # Not from the caller's copy: /forget may have blanked a text of the run since that was made.
            changed = replace(self._runs[run.id], **fields)
            return self._commit(changed, fields)

    def blank(self, matches: Callable[[str], bool], keys: frozenset[str]) -> int:
        """Take texts that match out of messages and replies of some conversations, also on disk. Return how many there
        were."""
        with self._lock:
            before: list[AcceptedMessage | AnswerRun] = [*self._messages.values(), *self._runs.values()]
            after = [blanked(value, matches) if value.key in keys else value for value in before]
            count = sum(old != new for old, new in zip(before, after, strict=True))
            if count:
                # A rewrite, since a record that is only appended would leave the text before it on the disk.
                self._log.rewrite(_to_lines(after), erase=True)
                for value in after:
                    self._apply(value)
            return count

    def _commit(self, value: Value, changed: Mapping[str, Any] | None = None) -> Value:
        """Store a record, then apply what it leads to."""
        with self._lock:
            # The log first: what a reader of this process sees must not be gone after a kill.
            self._log.append([format_record(value, changed)])
            self._apply(value)
            if len(self._runs) > MAX_FINISHED_RUNS + REWRITE_AFTER_RUNS:
                self._drop_old_runs()
            return value

    def _apply(self, value: AcceptedMessage | AnswerRun) -> None:
        if isinstance(value, AcceptedMessage):
            self._messages[value.channel, value.id] = value
            return
        self._runs[value.id] = value
        self._run_ids.update(((value.channel, message_id), value.id) for message_id in value.message_ids)

    def _set_aside_damaged(self) -> None:
        """Move damaged lines out of the log. If that fails they stay, and the next start skips them again."""
        if not self.faults:
            return
        for fault in self.faults[:_MAX_LOGGED_FAULTS]:
            log.warning("%s", fault)
        try:
            self._log.rewrite(_to_lines([*self._messages.values(), *self._runs.values()]))
            log.warning("%s: moved %d damaged lines to %s", INBOX, len(self.faults), INBOX + DAMAGED_ENDING)
        except WorkspaceError as exc:
            log.warning("damaged lines stay in the inbox (%s)", exc.message)

    def _drop_old_runs(self) -> None:
        """Rewrite the log without the oldest finished runs, if there are more than are kept.

        If that fails, the old runs stay: the step that led here is on disk, and must not be reported as failed.
        """
        # In the order in which they began. Unfinished ones stay, however old: their messages are still to be answered.
        finished = [run for run in self._runs.values() if run.finished]
        dropped = {run.id: run for run in finished[: max(0, len(finished) - MAX_FINISHED_RUNS)]}
        if not dropped:
            return
        names = {(run.channel, name) for run in dropped.values() for name in run.message_ids}
        messages = [message for name, message in self._messages.items() if name not in names]
        try:
            self._log.rewrite(_to_lines([*messages, *(run for run in self._runs.values() if run.id not in dropped)]))
        except WorkspaceError as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
            return
        for name in names:
            del self._messages[name], self._run_ids[name]
        for run_id in dropped:
            del self._runs[run_id]


def _to_lines(values: Iterable[AcceptedMessage | AnswerRun]) -> list[bytes]:
    """Return the lines of a log. Messages come first: a run is read with those that it is about."""
    return [FIRST_LINE, *map(format_record, values)]


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
    storage = open_agent(config)
    if storage.logs.find(INBOX) is None:
        return None
    inbox = Inbox(storage, clock=SystemClock())
    unfinished = inbox.unfinished()
    answering = sum(len(run.message_ids) for run in unfinished if run.parts is None)
    undelivered = sum(run.parts is not None for run in unfinished)
    return InboxState(len(inbox.waiting()) + answering, undelivered, len(inbox.unconfirmed_runs()), len(inbox.faults))
