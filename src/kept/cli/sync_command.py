"""kept sync"""

from __future__ import annotations

import click

from kept.cli.output import echo, print_json, warn
from kept.cli.root import Globals
from kept.limits import printable_line
from kept.wording import plural

_SHOWN = 20


@click.command("sync")
@click.option("--init", "url", metavar="URL", help="Connect the workspace to a git repository, then synchronise.")
@click.pass_obj
def command(options: Globals, url: str | None) -> None:
    """Have the same notes on several machines, over git: commit, pull and push.

    Both versions of what two machines changed at once are kept. Private notes, conversations and settings stay here.
    Nothing of yours is touched: with staged files or during a merge or a rebase, the command refuses.
    """
    from kept.sync.git_sync import GitSync

    sync = GitSync(options.load_finished().config)
    if url is not None:
        sync.workspace.require()
        sync.repository.connect(url)
    report = sync.run()
    if options.as_json:
        from kept.tools.record_json import to_json

        print_json(to_json(report))
        return
    for problem in report.problems[:_SHOWN]:
        warn(f"{problem.path}: {problem.reason}")
    if len(report.problems) > _SHOWN:
        warn(f"{len(report.problems) - _SHOWN:,} more files have problems; --json names them all.")
    for path in report.conflicts:
        warn(f"{printable_line(path)}: another machine's version of a note that both changed. Merge and delete it")
    counts = ((report.committed, "committed"), (report.received, "received"))
    parts = [f"{plural(len(paths), 'file')} {what}" for paths, what in counts if paths]
    parts += ["pushed"] if report.pushed else []
    echo(f"{'; '.join(parts) or 'Nothing changed'} ({sync.repository.remote}, {sync.repository.branch}).")
