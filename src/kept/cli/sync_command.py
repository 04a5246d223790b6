"""kept sync"""

from __future__ import annotations

import click

from kept.base.wording import plural
from kept.cli.output import echo, print_json, warn_all
from kept.cli.root import Globals


@click.command("sync")
@click.option("--init", "url", metavar="URL", help="Connect the workspace to a git repository, then synchronise.")
@click.pass_obj
def command(options: Globals, url: str | None) -> None:
    """Have the same notes on several machines, over git: commit, pull and push.

    Both versions of what two machines changed at once are kept. Private notes, conversations and settings stay here.
    Nothing of yours is touched: with staged files or during a merge or a rebase, the command refuses.
    """
    from kept.agent.tools.record_json import to_json
    from kept.cli.sync.git_sync import GitSync

    sync = GitSync(options.load_finished().config)
    if url is not None:
        sync.connect(url)
    report = sync.run()
    if options.as_json:
        print_json(to_json(report))
        return
    warn_all(f"{problem.path}: {problem.reason}" for problem in report.problems)
    files = f"{plural(len(report.committed), 'file')} committed, {len(report.received):,} received"
    echo(f"{files}{', pushed' if report.pushed else ''} ({sync.remote}, {sync.branch}).")
