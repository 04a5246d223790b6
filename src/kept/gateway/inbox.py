"""Accepted messages and what became of them: a kill at any moment loses no message and repeats no reply.

An inbox is a log of records (`inbox_records`), which are checked when they are read. `Inbox` has the state that they
lead to, in memory. Only the process that holds the lease of the inbox writes to it, so that a gateway which was frozen
cannot write beside its successor.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kept.agent.events import Inbound
from kept.base.clock import Clock, SystemClock, new_id
from kept.base.json_values import to_tree
from kept.base.limits import is_time, utf8_safe, utf8_safe_tree
from kept.base.values import frozen
from kept.config import Config
from kept.errors import WorkspaceError
from kept.gateway.inbox_records import (
    FIRST_LINE,
    AcceptedMessage,
    AnswerRun,
    Name,
    blank_message,
    blank_run,
    check_same,
    format_record,
    format_value,
    parse_record,
)
from kept.sessions.session_key import SessionKey
from kept.storage.contract import Lease, Storage
from kept.storage.open import INBOX, open_agent
from kept.storage.record_store import DAMAGED_ENDING, RecordLog

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
            self._drop_old_runs(spare=0)

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
        """Record a message, or return the one that was recorded under its id.

        Raise MessageConflict if that one has another text or conversation.
        """
        with self._lock:
            known = self._messages.get((key.channel, message.id))
            if known is not None:
                return check_same(known, str(key), message.text)
            # What could not be read back is left out. In memory too, so that a restart changes nothing.
            sent_at = message.timestamp if message.timestamp and is_time(message.timestamp) else None
            text, sender, metadata = utf8_safe_tree([message.text, message.sender, dict(message.metadata or {})])
            at = self.clock.now()
            accepted = AcceptedMessage(key.channel, message.id, str(key), at, text, sender, sent_at, metadata)
            self._commit(format_value(accepted), accepted)
            return accepted

    def begin(self, messages: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        ids = tuple(message.id for message in messages)
        run = AnswerRun(new_id(), messages[0].channel, messages[0].key, ids, session_id)
        self._commit(format_value(run), run)
        return run

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
        safe = {"parts": tuple(map(utf8_safe, parts)), "details": utf8_safe_tree(dict(details or {}))}
        return self.change(run, push=push, entry_id=entry_id, error=error, **safe)

    def change(self, run: AnswerRun, **fields: Any) -> AnswerRun:
        """Record the next step of a run: these fields change."""
        with self._lock:
            changed = replace(self._runs[run.id], **fields)
            self._commit(format_record("run", id=run.id, **to_tree(fields)), changed)
        return changed

    def blank(self, matches: Callable[[str], bool], keys: frozenset[str]) -> int:
        """Take texts that match out of messages and replies of some conversations, also on disk. Return how many there
        were."""
        with self._lock:
            named = ((name, message) for name, message in self._messages.items() if message.key in keys)
            messages = {name: after for name, before in named if (after := blank_message(before, matches)) != before}
            answered = ((run_id, run) for run_id, run in self._runs.items() if run.key in keys)
            runs = {run_id: new for run_id, old in answered if (new := blank_run(old, matches)) != old}
            if messages or runs:
                lines = _to_lines({**self._messages, **messages}.values(), {**self._runs, **runs}.values())
                self._log.rewrite(lines, erase=True)
                self._messages.update(messages)
                self._runs.update(runs)
            return len(messages) + len(runs)

    def _commit(self, line: bytes, value: AcceptedMessage | AnswerRun) -> None:
        """Store a record, then apply what it leads to."""
        with self._lock:
            self._log.append([line])
            self._apply(value)
            self._drop_old_runs(spare=REWRITE_AFTER_RUNS)

    def _apply(self, value: AcceptedMessage | AnswerRun) -> None:
        """Apply a record that is stored."""
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
            self._log.rewrite(_to_lines(self._messages.values(), self._runs.values()))
            log.warning("%s: moved %d damaged lines to %s", INBOX, len(self.faults), INBOX + DAMAGED_ENDING)
        except WorkspaceError as exc:
            log.warning("damaged lines stay in the inbox (%s)", exc.message)

    def _drop_old_runs(self, *, spare: int) -> None:
        """Rewrite the log without the oldest finished runs, once there are more than are kept.

        If that fails, the old runs stay: the step that led here is on disk, and must not be reported as failed.
        """
        finished = [run for run in self._runs.values() if run.finished] if len(self._runs) > MAX_FINISHED_RUNS else []
        if len(finished) <= MAX_FINISHED_RUNS + spare:
            return
        dropped = {run.id: run for run in finished[: len(finished) - MAX_FINISHED_RUNS]}
        names = {(run.channel, name) for run in dropped.values() for name in run.message_ids}
        messages = [message for name, message in self._messages.items() if name not in names]
        try:
            self._log.rewrite(_to_lines(messages, [run for run in self._runs.values() if run.id not in dropped]))
        except WorkspaceError as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
            return
        for name in names:
            del self._messages[name], self._run_ids[name]
        for run_id in dropped:
            del self._runs[run_id]


def _to_lines(messages: Iterable[AcceptedMessage], runs: Iterable[AnswerRun]) -> list[bytes]:
    return [FIRST_LINE, *map(format_value, messages), *map(format_value, runs)]


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
