"""Accepted messages and what became of them: a kill at any moment loses no message and repeats no reply.

An inbox is a list of records (`inbox_records`). `Inbox` has the state that they lead to, in memory; `FileInbox` keeps
them in a file, for the one gateway of a home, and `SharedInbox` in the database of a team, for all its gateways.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kept.agent.events import Inbound
from kept.clock import Clock, new_id
from kept.damaged_records import Fault
from kept.limits import is_time
from kept.remote_errors import ConversationTaken
from kept.responder.answer_run import AcceptedMessage, AnswerRun, Name, check_same
from kept.responder.inbox_records import (
    RUN_ID,
    Record,
    advance,
    begun_record,
    blank_message,
    blank_run,
    read_message,
    read_run,
    received_record,
    run_records,
    with_text,
)
from kept.sessions.session_key import SessionKey
from kept.values import frozen

MAX_FINISHED_RUNS = 2_000
"""Finished runs that an inbox remembers: to fetch a reply later, and to recognise a message that is delivered twice."""
REWRITE_AFTER_RUNS = 500
"""The oldest finished runs are dropped, and the file is rewritten, when there are this many too many."""


@frozen
class BlankedInbox:
    """Messages and runs of an inbox without the texts that are to be forgotten."""

    messages: Mapping[Name, AcceptedMessage]
    runs: Mapping[str, AnswerRun]
    count: int
    """Number of those that changed."""

    def to_records(self) -> list[Record]:
        records = [received_record(message) for message in self.messages.values()]
        records += (record for run in self.runs.values() for record in run_records(run))
        return records


class Inbox(ABC):
    """Thread-safe. Every change is on disk, or in the database, when its method returns."""

    is_shared = False
    """True if other gateways answer messages of this inbox too."""

    def __init__(
        self, clock: Clock, *, max_finished_runs: int = MAX_FINISHED_RUNS, rewrite_after_runs: int = REWRITE_AFTER_RUNS
    ) -> None:
        self.clock = clock
        self._max_finished_runs = max_finished_runs
        self._rewrite_after_runs = rewrite_after_runs
        self._lock = threading.RLock()
        self._messages: OrderedDict[Name, AcceptedMessage] = OrderedDict()
        self._run_ids: dict[Name, str] = {}
        self._runs: OrderedDict[str, AnswerRun] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()

    @property
    @abstractmethod
    def faults(self) -> list[Fault]:
        """Records that were skipped, and the reasons."""

    @abstractmethod
    def _commit(self, record: Record) -> None:
        """Store a record, then apply it."""

    # conversations

    def owns(self, key: str) -> bool:
        """Return whether this process answers a conversation."""
        return True

    def catch_up(self) -> set[str]:
        """Apply the records of other gateways. Return the keys of the conversations that they changed."""
        return set()

    def claim(self, keys: Iterable[str]) -> list[str]:
        """Take over conversations that no process answers. Return those that this process answers from now on."""
        return [*keys]

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
            return [run for run in self._runs.values() if run.unconfirmed_parts]

    # changing

    def receive(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """Record a message, or return the one that was recorded under its id.

        Raise MessageConflict if that one has another text or conversation.
        """
        with self._lock:
            known = self._messages.get((key.channel, message.id))
            if known is not None:
                return check_same(known, str(key), message.text)
            accepted = self._accept(key, message)
            self._commit(received_record(accepted))
            return accepted

    def _accept(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        # A time that could not be read back counts as missing. In memory too, so that a restart changes nothing.
        sent_at = message.timestamp if message.timestamp and is_time(message.timestamp) else None
        inbound = replace(message, timestamp=sent_at, metadata=dict(message.metadata or {}))
        return AcceptedMessage(key.channel, message.id, str(key), inbound, self.clock.now())

    def edit(self, message: AcceptedMessage, text: str) -> AcceptedMessage:
        """Replace the text of a message."""
        self._commit({"type": "edited", "channel": message.channel, "id": message.id, "text": text})
        return self._messages[message.channel, message.id]

    def begin(self, messages: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        ids = tuple(message.id for message in messages)
        run = AnswerRun(new_id(), messages[0].channel, messages[0].key, ids, session_id)
        self._commit(begun_record(run))
        return run

    def begin_again(self, run: AnswerRun, *, session_id: str | None = None) -> AnswerRun:
        """Record another attempt, in another session if one is named."""
        other = {"session": session_id} if session_id not in (None, run.session_id) else {}
        return self._change(run, {"type": "begun", "attempts": run.attempts + 1, **other})

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

    @abstractmethod
    def blank(self, matches: Callable[[str], bool]) -> int:
        """Take texts that match out of messages and replies, also where they are stored. Return how many there were."""

    def _plan_blank(self, matches: Callable[[str], bool]) -> BlankedInbox:
        with self._lock:
            messages = {name: blank_message(message, matches) for name, message in self._messages.items()}
            runs = {run_id: blank_run(run, matches) for run_id, run in self._runs.items()}
            count = sum(messages[name] != message for name, message in self._messages.items())
            count += sum(runs[run_id] != run for run_id, run in self._runs.items())
            return BlankedInbox(messages, runs, count)

    def _use_blanked(self, blanked: BlankedInbox) -> None:
        with self._lock:
            self._messages.update(blanked.messages)
            self._runs.update(blanked.runs)

    def _change(self, run: AnswerRun, record: Record) -> AnswerRun:
        record = {**record, RUN_ID: run.id}
        with self._lock:
            changed = advance(self._get_run(run.id), record)
        self._commit(record)
        return changed

    def _get_run(self, run_id: str) -> AnswerRun:
        if run_id not in self._runs:  # in a team, after a failover that lost it
            raise ConversationTaken("Another gateway has begun this answer again.")
        return self._runs[run_id]

    def _apply(self, record: Record) -> None:
        """Apply a record that is stored."""
        if record["type"] == "received":
            message = read_message(record)
            self._messages[message.channel, message.id] = message
            return
        if record["type"] == "edited":
            name = (record["channel"], record["id"])
            self._messages[name] = with_text(self._messages[name], record["text"])
            return
        run_id = record[RUN_ID]
        if run_id not in self._runs:
            run = self._runs[run_id] = read_run(record)
            self._run_ids.update(((run.channel, message_id), run.id) for message_id in run.message_ids)
        else:
            self._runs[run_id] = advance(self._runs[run_id], record)
        if self._runs[run_id].finished:
            self._finished[run_id] = None

    def _plan_drop(self, *, spare: int) -> tuple[set[str], set[Name]]:
        """Return the oldest finished runs and their messages, once there are more than are kept."""
        if len(self._finished) <= self._max_finished_runs + spare:
            return set(), set()
        dropped = set(list(self._finished)[: len(self._finished) - self._max_finished_runs])
        runs = [self._runs[run_id] for run_id in dropped]
        return dropped, {(run.channel, message_id) for run in runs for message_id in run.message_ids}

    def _drop(self, runs: set[str], names: set[Name]) -> None:
        for name in names:
            del self._messages[name], self._run_ids[name]
        for run_id in runs:
            del self._runs[run_id], self._finished[run_id]
