"""Commit messages of a sync: files changed, machine, agent and author."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import islice

from kept.git_sync.git_objects import CommitText
from kept.history.git_commits import author_line
from kept.history.note_change import NoteChange
from kept.host_names import plain_name
from kept.limits import clip, printable_line
from kept.wording import plural

_SHOWN_FILES = 50
_SHOWN_CHANGES = 50
_LONGEST_NAME = 200
HOST_TRAILER = "Kept-Host"


def describe_change(
    changed: Sequence[str],
    removed: Sequence[str],
    changes: Iterable[NoteChange],
    *,
    agent: str,
    host: str,
    time: dt.datetime,
) -> CommitText:
    """Return the text of a commit with files that were written or removed here."""
    if len(changed) + len(removed) == 1:
        subject = f"{'Change' if changed else 'Remove'} {_name(*changed, *removed)}"
    else:
        parts = [f"change {plural(len(changed), 'file')}"] * bool(changed)
        parts += [f"remove {plural(len(removed), 'file')}"] * bool(removed)
        subject = " and ".join(parts).capitalize()
    lines = [f"{_name(path)}" for path in changed] + [f"removed: {_name(path)}" for path in removed]
    if len(lines) > _SHOWN_FILES:
        lines = [*lines[:_SHOWN_FILES], f"and {len(lines) - _SHOWN_FILES:,} more"]
    trailers = [
        line
        for change in islice(changes, _SHOWN_CHANGES)
        for line in (f"Kept-Change: {change.id}", f"Kept-By: {author_line(change)}")
    ]
    body = ["", *lines] if len(lines) > 1 else []
    return _text([f"{subject} on {host}", *body, "", *trailers, *_origin(agent, host)], agent, host, time)


def describe_merge(hosts: Sequence[str], *, agent: str, host: str, time: dt.datetime) -> CommitText:
    """Return the text of a commit that joins the work of this machine with that of others."""
    others = ", ".join(hosts[:_SHOWN_CHANGES]) or "the remote"
    return _text([f"Merge {others} with {host}", "", *_origin(agent, host)], agent, host, time)


def describe_transcripts(count: int, *, agent: str, host: str, time: dt.datetime) -> CommitText:
    """Return the text of a commit with the conversations of this machine."""
    changed = f"{plural(count, 'conversation')} changed" if count else "conversations removed"
    return _text([f"Conversations of {agent} on {host}: {changed}", "", *_origin(agent, host)], agent, host, time)


def _origin(agent: str, host: str) -> list[str]:
    return [f"Kept-Agent: {agent}", f"{HOST_TRAILER}: {host}"]


def _text(lines: Sequence[str], agent: str, host: str, time: dt.datetime) -> CommitText:
    return CommitText(f"{agent} on {host}", f"{agent}@{host}", "\n".join(lines) + "\n", time.astimezone())


def _name(path: str) -> str:
    return clip(printable_line(path), _LONGEST_NAME)


def parse_hosts(log: bytes) -> dict[str, list[str]]:
    """Return the machines that changed each file, the last one first, from the output of `git log` with LOG_FORMAT."""
    hosts: dict[str, list[str]] = {}
    host = ""
    for field in log.decode("utf-8", "surrogateescape").split("\0"):
        if field.startswith("\x01"):
            trailer, _, author = field[1:].partition("\x02")
            host = plain_name(trailer.partition("\x02")[0] or author)
        elif path := field.removeprefix("\n"):
            names = hosts.setdefault(path, [])
            if host not in names:
                names.append(host)
    return hosts


LOG_FORMAT = f"--format=%x01%(trailers:key={HOST_TRAILER},valueonly,separator=%x02)%x02%an"
