"""kept doctor"""

from __future__ import annotations

import click

from kept.cli.output import echo, json_option, print_json, printable, progress_bar, style
from kept.cli.root import Globals
from kept.cli.terminal_layout import wrap
from kept.doctor import Check, examine, examine_agents, repair
from kept.limits import one_line
from kept.memory import Memory

_INDENT = 20
"""Column of the details: after the mark and the name."""


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Repair what can be repaired. Notes are never changed.")
@json_option
@click.pass_context
def command(ctx: click.Context, fix: bool, as_json: bool) -> None:
    """Check index, notes, transcripts, permissions and embedder.

    Exits with 1 if something is wrong and was not repaired.
    """
    options: Globals = ctx.obj
    loaded = options.load()
    with Memory(loaded.config) as memory, progress_bar("Indexing") as progress:
        checks = examine(memory)
        if fix and any(check.remedy for check in checks):
            checks = repair(memory, checks, progress=progress)
    checks += examine_agents(loaded)
    if as_json:
        print_json({"ok": all(check.ok for check in checks), "checks": [check_json(check) for check in checks]})
    else:
        show_checks(checks, fixed=fix)
    ctx.exit(0 if all(check.ok for check in checks) else 1)


def check_json(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "ok": check.ok,
        "detail": check.detail,
        "remedy": check.remedy,
        "fixed": check.fixed,
        "warning": check.warning,
    }


def show_checks(checks: list[Check], *, fixed: bool) -> None:
    for check in checks:
        if check.fixed:
            mark = style("fixed", fg="green", bold=True)
        elif check.warning:
            mark = style("note ", fg="yellow", bold=True)
        else:
            mark = style("ok   ", fg="green") if check.ok else style("wrong", fg="red", bold=True)
        first, *further = wrap(printable(one_line(check.detail)), indent=_INDENT)
        echo("\n".join([f"{mark}  {check.name:<12} {first.lstrip()}", *further]))
        if check.remedy and (check.warning or not check.ok):
            echo(style("\n".join(wrap("→ " + printable(check.remedy), indent=_INDENT, hang=2)), dim=True))
    wrong = [check for check in checks if not check.ok]
    if wrong and not fixed and any(check.remedy for check in wrong):
        echo("\nRun 'kept doctor --fix' to apply the remedies (→).")
