"""What an inbox in a database lacks of what a gateway knows, after a failover to a server without the last commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kept.responder.answer_run import AcceptedMessage, AnswerRun, Name
from kept.responder.inbox_records import Record, advance, received_record, run_records
from kept.values import frozen


@frozen
class InboxContents:
    """Messages and runs, in the order of their arrival."""

    messages: Mapping[Name, AcceptedMessage]
    runs: Mapping[str, AnswerRun]


def missing_records(known: InboxContents, stored: InboxContents) -> list[Record]:
    """Return the records that lead from what is stored to what a gateway knows.

    A message that another gateway has begun to answer meanwhile stays with that answer.
    """
    lost = [message for name, message in _without_dropped(known, stored) if name not in stored.messages]
    present = stored.messages.keys() | {(message.channel, message.id) for message in lost}
    taken = {(run.channel, message_id) for run in stored.runs.values() for message_id in run.message_ids}
    records = [received_record(message) for message in lost]
    for run in known.runs.values():
        names = {(run.channel, message_id) for message_id in run.message_ids}
        if run.id in stored.runs:
            records += _steps_between(stored.runs[run.id], run)
        elif names <= present and not names & taken:
            records += run_records(run)
    return records


def _without_dropped(known: InboxContents, stored: InboxContents) -> Iterator[tuple[Name, AcceptedMessage]]:
    """Yield known messages without the oldest that are not stored: those were dropped on purpose, not lost."""
    is_shared = not known.messages.keys() & stored.messages.keys()
    for name, message in known.messages.items():
        is_shared = is_shared or name in stored.messages
        if is_shared:
            yield name, message


def _steps_between(stored: AnswerRun, known: AnswerRun) -> list[Record]:
    """Return the steps of a run that are not stored."""
    if _progress(known) <= _progress(stored) or stored.parts not in (None, known.parts):
        return []
    steps: list[Record] = []
    for record in run_records(known):
        after = advance(stored, record)
        if after != stored:
            steps.append(record)
            stored = after
    return steps


def _progress(run: AnswerRun) -> tuple[bool, int, bool, int]:
    return run.cancelled or run.parts is not None, run.settled, run.sending, run.attempts
