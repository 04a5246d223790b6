"""What was accepted and what became of it: a journal on disk, so that a kill at any moment loses no message and repeats
no reply.

    received    a message was accepted
    begun       messages of one conversation became a turn, in a session; once more for every new attempt
    answered    the reply, cut into the parts that the channel takes
    sending     a part is about to leave: from here on it may have arrived
    unsent      it certainly did not; it will be tried again
    sent        it arrived
    unsure      whether it arrived cannot be known, or it never will: it is not sent again
    cancelled   nobody wants an answer any more

Only one process has an inbox open: whoever opens it holds the gateway's lock.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from kept.agent.events import Inbound
from kept.clock import Clock, new_id
from kept.errors import MessageConflict, WriteFailed
from kept.quarantine import Fault
from kept.responder.journal import InboxFile
from kept.responder.letters import AcceptedMessage, AnswerRun, Record, letter_of, record_of_letter, records_of_turn
from kept.sessions.session_key import SessionKey

KEPT_TURNS = 2_000
"""So many finished turns are remembered: for a reply that is asked for later, and for a message that comes twice."""
_SPARE = 500

Name = tuple[str, str]
"""A channel, and the id that a message has there."""

log = logging.getLogger(__name__)


class Inbox:
    """Safe between threads. Every change is on disk when its method returns.

    ``read_only`` is for whoever does not hold the gateway's lock: the file is looked at and left as it is.
    """

    def __init__(self, path: str, *, clock: Clock, kept_turns: int = KEPT_TURNS, read_only: bool = False) -> None:
        self.clock = clock
        self._kept_turns = kept_turns
        self._lock = threading.Lock()
        self._letters: OrderedDict[Name, AcceptedMessage] = OrderedDict()
        self._turn_of: dict[Name, str] = {}
        self._turns: OrderedDict[str, AnswerRun] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._journal = InboxFile(path)
        for record in self._journal.read(repair=not read_only):
            self._apply(record)
        if not read_only:
            self._forget_old(spare=0)

    # looking

    def find(self, channel: str, message_id: str) -> AcceptedMessage | None:
        return self._letters.get((channel, message_id))

    def turn_of(self, letter: AcceptedMessage) -> AnswerRun | None:
        turn_id = self._turn_of.get((letter.channel, letter.id))
        return self._turns[turn_id] if turn_id else None

    def letters_of(self, turn: AnswerRun) -> list[AcceptedMessage]:
        return [self._letters[turn.channel, one] for one in turn.ids]

    def waiting(self) -> list[AcceptedMessage]:
        """Accepted, and not yet part of a turn."""
        with self._lock:
            return [letter for name, letter in self._letters.items() if name not in self._turn_of]

    def unfinished(self) -> list[AnswerRun]:
        with self._lock:
            return [turn for turn in self._turns.values() if not turn.finished]

    @property
    def faults(self) -> list[Fault]:
        """Lines of the journal that were left out, and why."""
        return self._journal.faults

    def unsure(self) -> list[AnswerRun]:
        """Turns of which a part may not have arrived."""
        with self._lock:
            return [turn for turn in self._turns.values() if turn.unsure]

    # changing

    def receive(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        """The same message again is the one that is there already."""
        with self._lock:
            known = self._letters.get((key.channel, message.id))
            if known is not None:
                return check_same(known, str(key), message.text)
            letter = AcceptedMessage(key.channel, message.id, str(key), message, self.clock.now())
            self._write(record_of_letter(letter))
            return self._letters[key.channel, message.id]

    def begin(self, letters: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        with self._lock:
            ids = [letter.id for letter in letters]
            turn_id = new_id()
            self._write(
                {
                    "type": "begun",
                    "turn": turn_id,
                    "channel": letters[0].channel,
                    "key": letters[0].key,
                    "ids": ids,
                    "session": session_id,
                }
            )
            return self._turns[turn_id]

    def begin_again(self, turn: AnswerRun) -> AnswerRun:
        return self._change(turn, {"type": "begun", "attempts": turn.attempts + 1})

    def answer(
        self, turn: AnswerRun, parts: Sequence[str], *, push: bool, entry_id: str | None, error: str | None = None
    ) -> AnswerRun:
        """``push`` says whether the parts have to be sent, or are fetched by whoever wants them."""
        answered = {"type": "answered", "parts": list(parts), "push": push, "entry": entry_id, "error": error}
        return self._change(turn, answered)

    def cancel(self, turn: AnswerRun) -> AnswerRun:
        return self._change(turn, {"type": "cancelled"})

    def mark(self, turn: AnswerRun, what: str, *, reason: str | None = None) -> AnswerRun:
        """sending, unsent, sent or unsure: of the first part that is not settled."""
        return self._change(turn, {"type": what, "part": turn.settled, **({"reason": reason} if reason else {})})

    def _change(self, turn: AnswerRun, record: Record) -> AnswerRun:
        with self._lock:
            self._write({**record, "turn": turn.id})
            return self._turns[turn.id]

    def _write(self, record: Record) -> None:
        self._journal.append([record])
        self._apply(record)
        self._forget_old(spare=_SPARE)

    # what the records mean

    def _apply(self, record: Record) -> None:
        if record["type"] == "received":
            letter = letter_of(record)
            self._letters[letter.channel, letter.id] = letter
            return
        turn = self._turns.get(record["turn"])
        if turn is None:
            turn = _begun(record)
            self._turn_of.update(((turn.channel, one), turn.id) for one in turn.ids)
        else:
            turn = _changed(turn, record)
        self._turns[turn.id] = turn
        if turn.finished:
            self._finished[turn.id] = None

    def _forget_old(self, *, spare: int) -> None:
        """Writes the journal anew without the oldest finished turns, once there are enough of them. Where that does
        not work they stay: what was to be written down is there already, and must not look as if it had failed."""
        if len(self._finished) <= self._kept_turns + spare:
            return
        gone = list(self._finished)[: len(self._finished) - self._kept_turns]
        forgotten = {(self._turns[one].channel, message_id) for one in gone for message_id in self._turns[one].ids}
        letters = [letter for name, letter in self._letters.items() if name not in forgotten]
        turns = [turn for turn in self._turns.values() if turn.id not in set(gone)]
        records = [record_of_letter(letter) for letter in letters]
        for turn in turns:
            records += records_of_turn(turn)
        try:
            self._journal.rewrite(records)
        except WriteFailed as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
            return
        for name in forgotten:
            del self._letters[name], self._turn_of[name]
        for turn_id in gone:
            del self._turns[turn_id], self._finished[turn_id]


def check_same(letter: AcceptedMessage, key: str, text: str) -> AcceptedMessage:
    if letter.key != key or letter.message.text != text:
        raise MessageConflict(f"A message with the id '{letter.id}' is there already, and it is another one.")
    return letter


def _begun(record: Record) -> AnswerRun:
    return AnswerRun(
        record["turn"],
        record["channel"],
        record["key"],
        tuple(record["ids"]),
        record["session"],
        record.get("attempts", 1),
    )


def _changed(turn: AnswerRun, record: Record) -> AnswerRun:
    match record["type"]:
        case "begun":
            return replace(turn, attempts=record["attempts"])
        case "answered":
            parts = tuple(record["parts"])
            return replace(turn, parts=parts, push=record["push"], entry_id=record["entry"], error=record["error"])
        case "cancelled":
            return replace(turn, cancelled=True)
        case "sending":
            return replace(turn, sending=True)
        case "unsent":
            return replace(turn, sending=False)
        case "sent":
            return replace(turn, sending=False, settled=record["part"] + 1)
        case "unsure":
            doubts = (*turn.unsure, (record["part"], record.get("reason", "")))
            return replace(turn, sending=False, settled=record["part"] + 1, unsure=doubts)
        case _:
            return turn


def describe(turn: AnswerRun | None) -> str:
    """The state of a message, in one word."""
    if turn is None:
        return "waiting"
    if turn.cancelled:
        return "cancelled"
    if turn.parts is None:
        return "answering"
    return "failed" if turn.error else "answered"
