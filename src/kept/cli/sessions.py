"""kept sessions list | show | reset | compact | delete | export"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kept.cli.output import (
    console,
    echo,
    echo_exactly,
    json_option,
    plural,
    print_json,
    printable,
    safe_json,
    style,
    warn,
)
from kept.cli.root import Globals
from kept.cli.streams import read_stdin
from kept.limits import clip, one_line
from kept.redact import redact
from kept.sessions.entries import (
    AnyEntry,
    Attachment,
    Block,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownEntry,
    format_entry,
    format_time,
)
from kept.sessions.record import SessionRecord
from kept.sessions.spoken import call_text, result_text
from kept.sessions.store import SessionStore
from kept.sessions.transcript import Damage, TranscriptLine

_SHORT = 100
_SPEAKERS = {"user": "You", "assistant": "Agent", "tool": "Tool", "system": "System"}
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow", "system": "magenta"}


@click.group("sessions")
def command() -> None:
    """List, read, reset, compact, delete and export conversations.

    ID is a session's id, the beginning of it, or the key of a conversation such as telegram:5054.
    """


@command.command("list")
@click.option("--channel", help="Only sessions of this channel.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Maximum number (default: all).")
@json_option
@click.pass_obj
def list_sessions(options: Globals, channel: str | None, limit: int | None, as_json: bool) -> None:
    """List sessions, most recently used first."""
    with options.sessions() as sessions:
        records = sessions.recent(channel=channel, limit=limit)
        _warn_of_problems(sessions)
    if as_json:
        print_json({"sessions": [record_json(record) for record in records]})
    elif records:
        _show_table(records)
    elif channel is None:
        echo("No sessions yet.")
    else:
        echo(f"No session is on channel '{channel}'.")


@command.command("show")
@click.argument("reference", metavar="ID")
@click.option("--tail", type=click.IntRange(min=1), help="Only the last N messages.")
@json_option
@click.pass_obj
def show(options: Globals, reference: str, tail: int | None, as_json: bool) -> None:
    """Read the session ID: who said what and when."""
    with options.sessions() as sessions:
        record = sessions.get(reference)
        lines: Iterable[TranscriptLine] = sessions.tail(record.id, tail) if tail else sessions.iter_lines(record.id)
        _warn_of_problems(sessions)
        if as_json:
            print_json({"session": record_json(record), **_lines_json(lines)})
            return
        echo(style(_title(record), bold=True))
        for line in lines:
            _show_line(line)


@command.command("reset")
@click.argument("reference", metavar="ID")
@json_option
@click.pass_obj
def reset(options: Globals, reference: str, as_json: bool) -> None:
    """End the session ID and start its successor. The old transcript is kept."""
    with options.sessions() as sessions:
        record = sessions.reset(reference)
        _warn_of_problems(sessions)
    if as_json:
        print_json({"session": record_json(record)})
    else:
        echo(f"Started session {record.id} after {record.predecessor}, which is kept.")


@command.command("compact")
@click.argument("reference", metavar="ID")
@click.option("--summary", required=True, help="Summary of the older part; '-' reads standard input.")
@click.option("--keep", type=click.IntRange(min=0), default=20, show_default=True, help="Messages to keep as they are.")
@json_option
@click.pass_obj
def compact(options: Globals, reference: str, summary: str, keep: int, as_json: bool) -> None:
    """Replace the older part of ID in the context by a summary. Nothing is removed from the transcript."""
    text = read_stdin() if summary == "-" else summary
    with options.sessions() as sessions:
        record = sessions.get(reference)
        entry = sessions.compact(record.id, text.strip(), keep_messages=keep)
        record = sessions.get(record.id)
        _warn_of_problems(sessions)
    if as_json:
        print_json({"session": record_json(record), "entry": _entry_json(entry)})
    else:
        echo(f"Session {record.id} was compacted ({plural(record.compactions, 'compaction')} in all).")


@command.command("delete")
@click.argument("reference", metavar="ID")
@click.option("--purge", is_flag=True, help="Delete the transcript for good instead of renaming it.")
@json_option
@click.pass_obj
def delete(options: Globals, reference: str, purge: bool, as_json: bool) -> None:
    """Delete the session ID. Its transcript is renamed, so that it can be restored."""
    with options.sessions() as sessions:
        record = sessions.get(reference)
        kept_in = sessions.delete(record.id, purge=purge)
        _warn_of_problems(sessions)
    if as_json:
        print_json({"deleted": record.id, "keptIn": kept_in})
    else:
        echo(f"Session {record.id} is deleted" + (f"; its transcript is now {kept_in}." if kept_in else "."))


@command.command("export")
@click.argument("reference", metavar="ID")
@click.option(
    "--format", "kind", type=click.Choice(["md", "jsonl"]), default="md", show_default=True, help="Output format."
)
@json_option
@click.pass_obj
def export(options: Globals, reference: str, kind: str, as_json: bool) -> None:
    """Print the whole session ID as Markdown, or as JSONL without its damaged lines."""
    with options.sessions() as sessions:
        record = sessions.get(reference)
        lines = sessions.iter_lines(record.id)
        _warn_of_problems(sessions)
        if as_json:
            print_json({"session": record_json(record), **_lines_json(lines)})
        elif kind == "jsonl":
            for entry in _readable(lines):
                echo(safe_json(format_entry(entry).decode()), nl=False)
        else:
            echo_exactly(f"# {_title(record)}\n")
            for entry in _readable(lines):
                echo_exactly(f"\n{_markdown(entry)}\n")


def _warn_of_problems(sessions: SessionStore) -> None:
    for problem in sessions.take_problems():
        warn(f"{problem.path}: {problem.reason.rstrip('.')}.")


# JSON


def record_json(record: SessionRecord) -> dict[str, Any]:
    return {
        "sessionId": record.id,
        "sessionKey": redact(record.key) or None,
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
        "thinkingLevel": record.thinking_override,
        "predecessor": record.predecessor,
        "successor": record.successor,
        "endedAt": format_time(record.ended) if record.ended else None,
        "endReason": record.end_reason,
        "damagedLines": record.damaged_lines,
        "transcriptPath": record.transcript_path,
        "metadata": record.metadata,
    }


def _lines_json(lines: Iterable[TranscriptLine]) -> dict[str, Any]:
    entries, damage = [], []
    for line in lines:
        if isinstance(line.content, Damage):
            damage.append({"line": line.number, "reason": line.content.reason})
        else:
            entries.append({"line": line.number, **_entry_json(line.content)})
    return {"entries": entries, "damage": damage}


def _entry_json(entry: AnyEntry) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(format_entry(entry))
    return tree


# for people


def _show_table(records: list[SessionRecord]) -> None:
    from rich.table import Table
    from rich.text import Text as Cell

    table = Table("Session", "Conversation", "Last used", "Messages", "Tokens", "", box=None, header_style="bold")
    for record in records:
        name = f"{record.channel}:{record.user_id}" if record.key else "(unknown)"
        table.add_row(
            Cell(printable(record.id)),
            Cell(printable(redact(name))),
            Cell(f"{record.updated:%Y-%m-%d %H:%M}"),
            Cell(f"{record.messages:,}", justify="right"),
            Cell(f"{record.tokens_total:,}", justify="right"),
            Cell(printable(redact(_remarks(record))), style="dim"),
        )
    console().print(table)


def _remarks(record: SessionRecord) -> str:
    remarks = []
    if record.ended:
        remarks.append(f"ended ({record.end_reason})")
    if record.compactions:
        remarks.append(plural(record.compactions, "compaction"))
    if record.damaged_lines:
        remarks.append(plural(record.damaged_lines, "damaged line"))
    return ", ".join(remarks)


def _title(record: SessionRecord) -> str:
    return f"Session {record.id}, {record.key or 'whose first line is lost'}, {plural(record.messages, 'message')}"


def _show_line(line: TranscriptLine) -> None:
    for text in _shown(line.content, line.number):
        echo(text)


def _shown(content: AnyEntry | Damage, number: int) -> Iterator[str]:
    match content:
        case Entry(body=Message() as message, timestamp=when):
            speaker = style(_speaker(message), fg=_COLOURS[message.role], bold=True)
            yield f"\n{style(_time(when), dim=True)} {speaker}"
            for block in message.content:
                yield _block(block)
        case Entry(timestamp=when, body=body):
            text = _event(body)
            if text:
                yield style(f"\n{_time(when)} ── {text}", dim=True)
        case UnknownEntry(type=kind):
            yield style(f"\n(line {number} is of a kind this version does not know: {kind})", dim=True)
        case Damage(reason=reason):
            yield style(f"\n(line {number} cannot be read: {reason})", fg="red")


def _event(body: object) -> str:
    match body:
        case SessionStart(predecessor=before):
            return f"session begins, after {before}" if before else "session begins"
        case CompactionEntry(summary=summary, source=source):
            return f"compacted ({source}): {summary}"
        case ResetEntry(reason=reason, successor=after):
            return f"session ends ({reason})" + (f", goes on in {after}" if after else "")
        case StateEntry(name=name, value=value):
            return f"{name}: {_shorten(json.dumps(value, ensure_ascii=False))}"
        case _:
            return ""


def _block(block: Block) -> str:
    match block:
        case Text(text):
            return text
        case Thinking(text):
            return f"(thinking) {_shorten(text)}"
        case ToolCall(name=name, arguments=arguments):
            return call_text(name, _shorten(json.dumps(arguments, ensure_ascii=False)))
        case ToolResult(text=text, is_error=is_error):
            return result_text(_shorten(text), is_error=is_error)
        case Attachment(media_type, name):
            return f"[{name or media_type}]"
        case _:
            return f"[{block.fields.get('type', 'unknown')}]"


def _shorten(text: str) -> str:
    return clip(one_line(text), _SHORT)


def _speaker(message: Message) -> str:
    return " ".join((message.sender or "").split()) or _SPEAKERS[message.role]


def _time(when: dt.datetime) -> str:
    return f"{when.astimezone():%Y-%m-%d %H:%M}"


# Markdown


def _readable(lines: Iterable[TranscriptLine]) -> Iterator[AnyEntry]:
    for line in lines:
        if isinstance(line.content, Damage):
            warn(f"Line {line.number} cannot be read and is left out: {line.content.reason}.")
        else:
            yield line.content


def _markdown(entry: AnyEntry) -> str:
    match entry:
        case Entry(body=Message() as message, timestamp=when):
            text = "\n\n".join(_markdown_block(block) for block in message.content)
            return f"## {_speaker(message)}, {_time(when)}\n\n{text}"
        case Entry(body=CompactionEntry(summary=summary), timestamp=when):
            quoted = "\n".join(f"> {line}".rstrip() for line in summary.splitlines())
            return f"---\n\n*Compacted, {_time(when)}:*\n\n{quoted}"
        case Entry(body=body, timestamp=when):
            return f"*{_event(body)}, {_time(when)}*"
        case UnknownEntry(type=kind):
            return f"*({kind})*"


def _markdown_block(block: Block) -> str:
    match block:
        case ToolCall(name=name, arguments=arguments):
            return f"`{name}`\n\n{_fenced(json.dumps(arguments, ensure_ascii=False, indent=2), 'json')}"
        case ToolResult(text=text):
            return _fenced(text, "")
        case _:
            return _block(block)


def _fenced(text: str, language: str) -> str:
    """Return a text in a code fence longer than any in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


__all__ = ["command", "record_json"]
