"""kept status and kept doctor: the state of the memory, and what is wrong with it"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kept.agent.tools.record_json import status_json, to_json
from kept.base.limits import one_line
from kept.base.reports import Status
from kept.base.wording import plural, size_text
from kept.cli.options import kept_command, switch
from kept.cli.output import dim, local_time, printable, progress_bar, style, warn_all
from kept.cli.root import Globals
from kept.cli.terminal_layout import field_lines, wrap

if TYPE_CHECKING:
    from kept.gateway.inbox import InboxState
    from kept.server.doctor import Check


@kept_command("status")
def command(options: Globals) -> None:
    """Show the state of the memory and its index."""
    from kept.config.layers import agents_sharing_workspace
    from kept.gateway.inbox import find_inbox_state
    from kept.memory import Memory
    from kept.server.live import find_watcher

    if options.login():
        _show_remote(options)
        return
    loaded = options.load(quietly=True)
    sharing = agents_sharing_workspace(loaded)
    with Memory.of(loaded) as memory:
        status = memory.status()
        watcher = find_watcher(memory.config)
        inbox = find_inbox_state(memory.config)
        waiting = memory.review.count()
    shape = {**status_json(status), "sharedWith": sharing, "watcher": watcher, "inbox": to_json(inbox)}
    owner = f"shared with {', '.join(sharing)}" if sharing else "not shared with other agents"
    how = "the next search" if loaded.config.memory_search.sync.on_search else "'kept index'"
    batches = [f"{plural(job.texts, 'text')} at {job.provider} since {local_time(job.since)}" for job in status.batches]
    budget = status.model_budget_tokens
    rows = [
        *_index_rows(status, owner),
        ("Live", f"process {watcher} keeps the index current" if watcher else f"not watched; {how} updates the index"),
        *([("Inbox", _inbox_text(inbox))] if inbox else []),
        *([("Review", f"{plural(waiting, 'change')} by agents to review: see 'kept review'")] if waiting else []),
        *([("Batches", ", ".join(batches))] if batches else []),
        *([("Budget", f"{status.model_tokens_today:,} of {budget:,} tokens today")] if budget is not None else []),
    ]
    problems = (*status.degraded, *(f"{problem.path}: {problem.reason}" for problem in status.problems))
    warnings = (style(f"! {reason}", fg="yellow") for reason in problems)
    options.report({**shape, "review": {"waiting": waiting}}, [*field_lines(rows), *warnings])


def _show_remote(options: Globals) -> None:
    """Show the state of the memory on the server, and what waits here."""
    with options.memory() as memory:
        status = memory.status()
    rows = [("Server", memory.place), *_index_rows(status, "as the token sees them")]
    options.report({**status_json(status), "server": memory.place}, field_lines(rows))


def _index_rows(status: Status, owner: str) -> list[tuple[str, str]]:
    dims = f" ({status.dims} dimensions)" if status.dims else ""
    changed = f"{plural(status.changed_files, 'file')} changed since" if status.changed_files else "needs a rebuild"
    return [
        ("Workspace", status.workspace),
        ("Agent", status.agent),
        ("Notes", f"{_counted(status, 'memory', 'note')} ({owner})"),
        ("Sessions", _counted(status, "sessions", "conversation")),
        ("Embeddings", f"{status.provider}, {status.model}{dims}" if status.model else "none"),
        ("Index", f"{status.index_path} ({size_text(status.index_bytes)})"),
        ("Cache", f"{status.cache_entries:,} embeddings (maximum {status.cache_max_entries:,})"),
        ("Last sync", local_time(status.last_sync) if status.last_sync else "never"),
        ("State", changed if status.dirty else "up to date"),
    ]


def _inbox_text(inbox: InboxState) -> str:
    parts = (
        f"{plural(inbox.waiting, 'message')} without an answer" if inbox.waiting else "",
        f"{plural(inbox.undelivered, 'reply', 'replies')} not sent yet" if inbox.undelivered else "",
        f"{plural(inbox.unsure, 'reply', 'replies')} that may not have arrived" if inbox.unsure else "",
        f"{plural(inbox.damaged, 'damaged line')} (see 'kept doctor')" if inbox.damaged else "",
    )
    return ", ".join(filter(None, parts)) or "every message is answered"


def _counted(status: Status, source: str, name: str) -> str:
    counts = status.source_counts.get(source, {})
    return f"{plural(counts.get('files', 0), name)}, {plural(counts.get('chunks', 0), 'chunk')}"


_INDENT = 20
"""Column of the details: after the mark and the name."""


@click.command("doctor")
@switch("--fix", "Repair what can be repaired. Notes are never changed.")
@click.pass_context
def doctor_command(ctx: click.Context, fix: bool) -> None:
    """Check index, notes, transcripts, permissions and embedder.

    Exits with 1 if something is wrong and was not repaired.

    \b
    kept doctor --fix
    """
    from kept.memory import Memory
    from kept.server.doctor import examine, examine_agents, repair

    options: Globals = ctx.obj
    loaded = options.load(quietly=True)
    warn_all(loaded.config.notices)
    with Memory(loaded.config) as memory, progress_bar("Indexing") as progress:
        checks = examine(memory)
        if fix and any(check.remedy for check in checks):
            checks = repair(memory, checks, progress=progress)
    checks += examine_agents(loaded)
    is_ok = all(check.ok for check in checks)
    options.report({"ok": is_ok, "checks": to_json(checks)}, _check_lines(checks, fixed=fix))
    ctx.exit(0 if is_ok else 1)


def _check_lines(checks: list[Check], *, fixed: bool) -> Iterator[str]:
    for check in checks:
        word, colour = ("ok", "green") if check.ok else ("wrong", "red")
        if check.fixed or check.warning:
            word, colour = ("fixed", "green") if check.fixed else ("note", "yellow")
        mark = style(f"{word:<5}", fg=colour, bold=word != "ok")
        first, *further = wrap(printable(one_line(check.detail)), indent=_INDENT)
        yield from (f"{mark}  {check.name:<12} {first.lstrip()}", *further)
        if check.remedy and (check.warning or not check.ok):
            yield from map(dim, wrap("→ " + printable(check.remedy), indent=_INDENT, hang=2))
    if not fixed and any(check.remedy and not check.ok for check in checks):
        yield "\nRun 'kept doctor --fix' to apply the remedies (→)."
