"""kept sessions list | show | rename | reset | delete | restore"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from kept.base.limits import clip
from kept.base.redact import redact
from kept.base.wording import plural
from kept.cli.options import kept_command, max_results_option, option, switch
from kept.cli.output import bold, dim, local_time, printable, require_consent, style, warn, warn_all
from kept.cli.root import Globals
from kept.cli.terminal_layout import PIPE_COLUMNS, columns, table_text
from kept.errors import SessionNotFound, UsageError
from kept.sessions.deleted import DeletedSession
from kept.sessions.echoes import is_hidden
from kept.sessions.entries import Entry, Message, UnknownEntry, format_entry, format_time
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import SHOWN_SPEAKERS, find_utterance, line_text
from kept.sessions.store import SessionStore
from kept.sessions.title import TITLE_CHARS
from kept.sessions.transcript import Damage, TranscriptLine

_SHORTEST_ID = 8
_LONGEST_PLACE = 30
_NONE_DELETED = "No session is deleted."
_COLOURS = {"user": "cyan", "assistant": "green", "system": "magenta"}
_OF_TOOLS = ("→ ", "← failed: ")
"""How the lines of a call and of a result begin that failed."""


@click.group("sessions")
def command() -> None:
    """List, read, rename, reset, delete and restore conversations.

    ID is a session's id, the beginning of it, or the key of a conversation such as telegram:5054.

    \b
    kept sessions list -n 5
    kept sessions show telegram:5054 --tail 20
    """


@kept_command("list", command)
@option("--channel", "NAME", "Only sessions of this channel.")
@switch("--deleted", "List deleted sessions instead, which 'restore' brings back.")
@max_results_option(None, 1_000_000, note=" (default: all)")
def list_sessions(options: Globals, channel: str | None, deleted: bool, max_results: int | None) -> None:
    """List sessions, most recently used first, with their titles."""
    if deleted and channel is not None:
        raise UsageError("A deleted session has no channel.", hint="Leave out --channel.")
    with _opened(options) as sessions:
        if deleted:
            removed = sessions.deleted()[:max_results]
            shapes = [
                {
                    "sessionId": session.id,
                    "deletedAt": format_time(session.deleted) if session.deleted else None,
                    "keptIn": None if session.is_purged else _find_path(sessions, session.log),
                }
                for session in removed
            ]
            options.report(
                {"sessions": [], "deleted": shapes}, map(_deleted_line, removed) if removed else _NONE_DELETED
            )
            return
        records = sessions.recent()
    shown = [record for record in records if channel in (None, record.channel)][:max_results]
    if channel is not None and not shown:
        channels = ", ".join(sorted({record.channel for record in records if record.channel}))
        warn(f"No session is on channel '{channel}'. There are: {channels or 'none'}.")
    chars = _id_chars([record.id for record in records])
    rows = [
        (record.id[:chars], local_time(record.updated), record.messages, redact(_place(record)), redact(_title(record)))
        for record in shown
    ]
    table = table_text(("Session", "Last used", "Messages", "Conversation", "Title"), rows)
    options.report({"sessions": [record_json(sessions, record) for record in shown]}, table or "No sessions.")


def _deleted_line(session: DeletedSession) -> str:
    when = local_time(session.deleted) if session.deleted else "at an unknown time"
    purged = "  purged: only an import can bring it back" if session.is_purged else ""
    return f"{session.id}  deleted {when}{dim(purged)}"


@kept_command("show", command)
@click.argument("reference", metavar="ID")
@option("--tail", "N", "Only the last N messages.", type=click.IntRange(min=1))
def show(options: Globals, reference: str, tail: int | None) -> None:
    """Read the session ID: who said what and when. A tool call is one line.

    With --json, it is everything: the results of tools too, and what the model was sent for each answer.
    """
    with _opened(options) as sessions:
        record = sessions.get(reference)
        lines = _read_lines(sessions, record, tail, only_talk=not options.as_json)
        title = bold(record.title) if record.title else ""
        name = f"{record.channel}:{record.folder}" if record.folder else record.key or "whose first line is lost"
        about = f"Session {record.id}, {name}, {plural(record.messages, 'message')}"
        about = style(about, bold=not title, dim=bool(title))
        shape = {"session": record_json(sessions, record), **_lines_json(lines)}
        options.report(shape, filter(None, (title, about, *map(_shown_line, lines))))


def _read_lines(
    sessions: SessionStore, record: SessionRecord, tail: int | None, *, only_talk: bool
) -> list[TranscriptLine]:
    """Return the lines to show. With ``only_talk``, a tail has that many messages with words, whatever tools did."""
    if tail is None:
        return [*sessions.iter_lines(record.id)]
    count = tail
    while True:
        lines = sessions.tail(record.id, count)
        talk = [at for at, line in enumerate(lines) if not only_talk or _is_talk(line)]
        if len(talk) >= tail:
            return lines[talk[-tail] :]
        if count > record.messages:
            return lines
        count *= 4


# A conversation as text: what was said, as the index has it, with speakers and times. A tool call is one line, and its
# result is left out unless it failed. What clients put into messages (reminders, commands and their output) and
# thinking are left out too; JSON has them all.


def _is_talk(line: TranscriptLine) -> bool:
    """Return whether a line is a message of a person or the agent with words in it."""
    kind, texts = _find_talk(line)
    return kind in ("user", "assistant") and any(not text.startswith(_OF_TOOLS) for text in texts)


def _shown_line(line: TranscriptLine) -> str:
    """Return a line of a transcript, or nothing."""
    content = line.content
    if isinstance(content, UnknownEntry) and "/" not in content.type:  # with a slash, it is another program's record
        return dim(f"\n(line {line.number} is of a kind this version does not know: {content.type})")
    if not isinstance(content, Entry) or not isinstance(content.body, Message):
        text = line_text(line)
        return dim(f"\n{text}") if text else ""
    kind, texts = _find_talk(line)
    shown = [dim(f"  {text}") if text.startswith(_OF_TOOLS) else text for text in texts]
    if _is_talk(line) or kind == "system":
        speaker = style(content.body.speaker or SHOWN_SPEAKERS[kind], fg=_COLOURS[kind], bold=True)
        shown.insert(0, f"\n{dim(local_time(content.timestamp))} {speaker}")
    return "\n".join(shown)


def _find_talk(line: TranscriptLine) -> tuple[str, list[str]]:
    """Return who says something in a line, and what; of a tool, only that it failed."""
    content, utterance = line.content, find_utterance(line.number, line.content)
    if utterance is None or (
        isinstance(content, Entry) and isinstance(content.body, Message) and is_hidden(content.body)
    ):
        return "", []
    texts = utterance.text.split("\n")
    return utterance.kind, [text for text in texts if text.startswith(_OF_TOOLS)] if utterance.kind == "tool" else texts


@kept_command("rename", command)
@click.argument("reference", metavar="ID")
@click.argument("title")
def rename(options: Globals, reference: str, title: str) -> None:
    """Give the session ID a title of your own. An empty TITLE removes it."""
    if len(title) > TITLE_CHARS:
        raise UsageError(f"The title is longer than {TITLE_CHARS} characters.", hint="Choose a shorter one.")
    with _opened(options) as sessions:
        record = sessions.rename(reference, title)
    text = f"Session {record.id} is now called {record.title!r}." if record.title else "It has no title."
    options.report({"session": record_json(sessions, record)}, text)


@kept_command("reset", command)
@click.argument("reference", metavar="ID")
def reset(options: Globals, reference: str) -> None:
    """End the session ID and start its successor. The old transcript is kept."""
    with _opened(options) as sessions:
        record = sessions.reset(reference)
    text = f"Started session {record.id} after {record.predecessor}, which is kept."
    options.report({"session": record_json(sessions, record)}, text)


@kept_command("delete", command)
@click.argument("reference", metavar="ID")
@switch("--purge", "Remove the transcript for good instead of renaming it.")
@switch("--yes", "Do not ask before a purge.", "-y")
def delete(options: Globals, reference: str, purge: bool, yes: bool) -> None:
    """Delete the session ID. Its transcript is renamed, and 'restore' brings it back.

    Later imports leave a deleted session out.
    """
    with _opened(options) as sessions:
        session_id, title = _find_to_delete(sessions, reference, purge=purge)
        if purge and not yes and sys.stdin.isatty():
            name = f"{session_id} ({printable(title)})" if title else session_id
            require_consent(f"Remove the transcript of {name} for good? It cannot be restored.")
        log = sessions.delete(session_id, purge=purge)
        kept_in = log and _find_path(sessions, log)
    text = f"Session {session_id} is deleted for good."
    if kept_in:
        text = f"Session {session_id} is deleted; its transcript is now {kept_in}.\n"
        text += dim(f"'kept sessions restore {session_id}' brings it back.")
    options.report({"deleted": session_id, "keptIn": kept_in}, text)


def _find_to_delete(sessions: SessionStore, reference: str, *, purge: bool) -> tuple[str, str]:
    """Return id and title of a session. A purge also takes one that was deleted before."""
    try:
        record = sessions.get(reference)
        return record.id, record.title
    except SessionNotFound:
        deleted = sessions.find_deleted(reference) if purge else None
        if deleted is None or deleted.is_purged:
            raise
        return deleted.id, ""


@kept_command("restore", command)
@click.argument("reference", metavar="ID")
def restore(options: Globals, reference: str) -> None:
    """Bring back the deleted session ID, and let imports add to it again."""
    with _opened(options) as sessions:
        deleted, record = sessions.restore(reference)
    text = f"The transcript of session {deleted.id} was purged. The next import or capture may bring it back."
    if record:
        text = f"Session {record.id} is restored, with {plural(record.messages, 'message')}."
    options.report({"restored": deleted.id, "session": record_json(sessions, record) if record else None}, text)


@contextmanager
def _opened(options: Globals) -> Iterator[SessionStore]:
    """Open the sessions, and say at the end what could not be read."""
    with options.sessions() as sessions:
        yield sessions
        warn_all(f"{problem.path}: {problem.reason.rstrip('.')}." for problem in sessions.take_problems())


# JSON


def record_json(sessions: SessionStore, record: SessionRecord) -> dict[str, Any]:
    return {
        "sessionId": record.id,
        "sessionKey": redact(record.key) or None,
        "title": record.title or None,
        "channel": record.channel,
        "accountId": record.account_id,
        "chatType": record.chat_type,
        "userId": redact(record.user_id),
        "createdAt": format_time(record.created),
        "updatedAt": format_time(record.updated),
        "messageCount": record.messages,
        "inputTokens": record.tokens_in,
        "outputTokens": record.tokens_out,
        "contextTokens": record.tokens_context,
        "totalTokens": record.tokens_total,
        "compactionCount": record.compactions,
        "flushCount": record.flushes,
        "memoryFlushAt": format_time(record.flushed) if record.flushed else None,
        "memoryFlushCompactionCount": record.flush_compactions,
        "modelOverride": record.model_override,
        "predecessor": record.predecessor,
        "successor": record.successor,
        "endedAt": format_time(record.ended) if record.ended else None,
        "endReason": record.end_reason,
        "damagedLines": record.damaged_lines,
        "transcriptPath": _find_path(sessions, record.log),
        "metadata": record.metadata,
    }


def _find_path(sessions: SessionStore, log: str) -> str:
    return os.path.join(sessions.folder, log)


def _lines_json(lines: Iterable[TranscriptLine]) -> dict[str, list[dict[str, Any]]]:
    """Return entries, lines that cannot be read, and what each answer records about its context."""
    from kept.agent.context import read_context

    entries, damage, contexts = [], [], []
    for line in lines:
        entry = line.content
        if isinstance(entry, Damage):
            damage.append({"line": line.number, "reason": entry.reason})
            continue
        entries.append({"line": line.number, **json.loads(format_entry(entry))})
        if isinstance(entry, Entry) and isinstance(entry.body, Message) and (context := read_context(entry.body)):
            when = format_time(entry.timestamp)
            contexts.append({"line": line.number, "entryId": entry.id, "timestamp": when, **context})
    return {"entries": entries, "damage": damage, "contexts": contexts}


# for people


def _id_chars(ids: Sequence[str]) -> int | None:
    """Return how many characters of an id tell all of them apart, or None for whole ids, as in a pipe."""
    if columns() >= PIPE_COLUMNS:
        return None
    longest = max(map(len, ids), default=0)
    counts = range(_SHORTEST_ID, longest)
    return next((chars for chars in counts if len({session_id[:chars] for session_id in ids}) == len({*ids})), longest)


def _place(record: SessionRecord) -> str:
    """Return channel and person, or channel and folder. On a terminal, a long one is cut to the folder's name."""
    if not record.key:
        return "(unknown)"
    name = f"{record.channel}:{record.folder or record.user_id}"
    if columns() >= PIPE_COLUMNS or len(name) <= _LONGEST_PLACE:
        return name
    return clip(f"{record.channel}:…/{os.path.basename(name.rstrip('/'))}", _LONGEST_PLACE)


def _title(record: SessionRecord) -> str:
    """Return the title of a session, and what is special about it."""
    remarks = (
        f"ended ({record.end_reason})" if record.ended else "",
        plural(record.compactions, "compaction") if record.compactions else "",
        plural(record.damaged_lines, "damaged line") if record.damaged_lines else "",
    )
    shown = ", ".join(filter(None, remarks))
    return f"{record.title} ({shown})" if record.title and shown else record.title or shown


__all__ = ["command", "record_json"]
