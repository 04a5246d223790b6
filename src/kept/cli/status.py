"""kept status"""

from __future__ import annotations

from typing import Any

import click

from kept.cli.output import console, json_option, plural, print_json, printable, size_text
from kept.cli.root import Globals
from kept.records import Status


@click.command("status")
@json_option
@click.pass_obj
def command(options: Globals, as_json: bool) -> None:
    """What is remembered, with what it is indexed, and whether all is well."""
    with options.memory() as memory:
        status = memory.status()
    if as_json:
        print_json(status_json(status))
    else:
        show_status(status)


def status_json(status: Status) -> dict[str, Any]:
    return {
        "backend": "builtin",
        "provider": status.provider,
        "requestedProvider": status.requested_provider,
        "model": status.model,
        "dims": status.dims,
        "files": status.files,
        "chunks": status.chunks,
        "sources": [{"source": name, **counts} for name, counts in status.source_counts.items()],
        "dirty": status.dirty,
        "changedFiles": status.changed_files,
        "pending": status.pending,
        "workspaceDir": status.workspace,
        "dbPath": status.index_path,
        "agent": status.agent,
        "indexBytes": status.index_bytes,
        "cache": {"entries": status.cache_entries, "maxEntries": status.cache_max_entries},
        "lastSync": status.last_sync,
        "degraded": list(status.degraded),
        "problems": [{"path": one.path, "reason": one.reason} for one in status.problems],
    }


def show_status(status: Status) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    changed = plural(status.changed_files, "note") + " changed since; the next search or 'kept index' takes them in"
    rows = [
        ("Workspace", status.workspace),
        ("Agent", status.agent),
        ("Notes", f"{plural(status.files, 'note')}, {plural(status.chunks, 'chunk')}"),
        ("Embeddings", f"{status.provider}, {status.model} ({status.dims} dimensions)" if status.model else "none"),
        ("Index", f"{status.index_path} ({size_text(status.index_bytes)})"),
        ("Cache", f"{status.cache_entries:,} of at most {status.cache_max_entries:,} embeddings"),
        ("Last sync", status.last_sync or "never"),
        ("State", (changed if status.changed_files else "to be rebuilt") if status.dirty else "up to date"),
    ]
    for name, value in rows:
        table.add_row(name, Text(value))
    out = console()
    out.print(table)
    for reason in status.degraded:
        out.print(Text("! " + reason, style="yellow"))
    for problem in status.problems:
        out.print(Text(printable(f"! {problem.path}: {problem.reason}"), style="yellow"))
