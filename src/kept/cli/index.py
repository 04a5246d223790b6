"""kept index"""

from __future__ import annotations

import click

from kept.cli.output import echo, json_option, plural, print_json, progress_bar, warn
from kept.cli.root import Globals
from kept.records import Preview, SyncReport
from kept.tools.record_json import to_json


@click.command("index")
@click.option("--force", is_flag=True, help="Rebuild the index from every note.")
@click.option("--dry-run", is_flag=True, help="Show what would be embedded and its cost, without doing it.")
@json_option
@click.pass_context
def command(ctx: click.Context, force: bool, dry_run: bool, as_json: bool) -> None:
    """Update the index from notes and conversations."""
    options: Globals = ctx.obj
    if dry_run:
        with options.memory() as memory:
            preview = memory.preview(force=force)
        print_json(to_json(preview)) if as_json else echo(preview_text(preview))
        return
    with options.memory() as memory, progress_bar("Indexing") as progress:
        report = memory.sync(force=force, progress=progress)
    if as_json:
        print_json(to_json(report))
    else:
        show_report(report)


def preview_text(preview: Preview) -> str:
    if not (preview.rebuild or preview.files or preview.removed or preview.to_embed):
        return "Nothing to do: the index is up to date."
    lines = [f"Rebuild: {preview.rebuild}."] if preview.rebuild else []
    parts = [f"{plural(preview.files, 'file')} to index"] if preview.files else []
    parts += [f"{preview.removed:,} to remove" if parts else f"{plural(preview.removed, 'file')} to remove"] * bool(
        preview.removed
    )
    lines += [", ".join(parts) + "."] if parts else []
    if preview.model and not preview.to_embed and preview.cached:
        lines.append(f"Nothing to embed with {preview.model}: {plural(preview.cached, 'text')} from the cache.")
    elif preview.model and preview.to_embed:
        lines.append(
            f"{plural(preview.to_embed, 'text')} to embed with {preview.model}, {preview.cached:,} from the cache:"
            f" about {plural(preview.tokens, 'token')}, {cost_text(preview.cost_usd)}."
        )
    return "\n".join(lines)


def cost_text(cost_usd: float | None) -> str:
    if cost_usd is None:
        return "price unknown"
    return "free" if cost_usd == 0 else f"about ${cost_usd:.4f}" if cost_usd < 1 else f"about ${cost_usd:,.2f}"


def show_report(report: SyncReport) -> None:
    if report.rebuilt:
        warn(f"Rebuilt: {report.rebuilt.rstrip('.')}.")
    for problem in report.problems:
        warn(f"{problem.path}: {problem.reason}")
    for failure in report.failures:
        warn(failure)
    echo(report_line(report))


def report_line(report: SyncReport) -> str:
    if report.indexed or report.removed:
        parts = [f"{plural(report.indexed, 'file')} indexed"]
        if report.removed:
            parts.append(f"{report.removed:,} removed")
        parts.append(f"{plural(report.embedded, 'text')} embedded, {report.cached:,} from the cache")
    else:
        parts = ["Nothing changed"]
    parts.append(f"{plural(report.files, 'file')} and {plural(report.chunks, 'chunk')} in all")
    return "; ".join(parts) + f" ({report.took_ms / 1000:.2f} s)."
