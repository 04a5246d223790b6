"""kept bench"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kept.cli.output import bars, console, echo, json_option, plural, print_json, printable, size_text, style, warn
from kept.cli.root import Globals, setting_pairs
from kept.errors import UsageError
from kept.tools.record_json import to_json

if TYPE_CHECKING:
    from rich.table import Table

    from kept.bench.measurement import FigureSummary, SetMeasurement
    from kept.bench.parallel import Report

_SHOWN_CATEGORIES = 12
"""With more of them than this, the table would be about little else."""
_NAME_CHARS, _WIDE = 17, 100


@click.command("bench")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--provider", metavar="NAME", help="Measure with this embedding provider.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Measure with one setting changed.")
@click.option("--no-baselines", is_flag=True, help="Measure the settings alone, which is three times as fast.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Ask only N queries of each set, evenly spread.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Sets measured at a time (default: one a core).")
@click.option("--init", "starter", is_flag=True, help="Write a set to begin with into DIR, made of your notes.")
@click.option("--curve", is_flag=True, help="Print what every threshold would refuse, and what it would lose.")
@json_option
@click.pass_obj
def command(
    options: Globals,
    folders: tuple[str, ...],
    provider: str | None,
    settings: tuple[str, ...],
    no_baselines: bool,
    sample: int | None,
    jobs: int | None,
    starter: bool,
    curve: bool,
    as_json: bool,
) -> None:
    """Measure recall on sets: folders with documents, queries, and which documents answer which query.

    DIR... are the sets; with --init, the folder that a starter set is written to. The settings are
    yours; indexes are made in a temporary folder and leave nothing behind.
    """
    if starter:
        make_starter(options, folders, as_json=as_json)
        return
    from kept.bench.json_report import sets_shape
    from kept.bench.measurement import MeasurePlan
    from kept.bench.parallel import default_jobs, measure_sets, read_sets

    changed = setting_pairs(settings) | ({"memory_search.provider": provider} if provider else {})
    config = options.load(settings=changed).config
    plan = MeasurePlan(baselines=(), sample=sample) if no_baselines else MeasurePlan(sample=sample)
    sets = read_sets(folders)
    jobs = min(jobs or default_jobs(), len(sets))
    with progress_of_sets() as report:
        measured = measure_sets(sets, config, plan, jobs=jobs, report=report)
    if as_json:
        print_json(sets_shape(measured, jobs=jobs))
    else:
        show(measured, jobs=jobs, curve=curve)


def make_starter(options: Globals, folders: tuple[str, ...], *, as_json: bool) -> None:
    from kept.bench.starter import write_starter

    if len(folders) != 1:
        raise UsageError("--init writes one set.", hint="For example: kept bench --init my-set")
    made = write_starter(options.load().config, folders[0])
    if as_json:
        print_json(to_json(made))
        return
    echo(f"Wrote {plural(made.documents, 'passage')} and {plural(made.queries, 'query', 'queries')} to {made.folder}.")
    echo("Its README.md says how to make it yours. Measure it with: kept bench " + shlex.quote(folders[0]))


@contextmanager
def progress_of_sets() -> Iterator[Report | None]:
    """A bar for each set on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TaskID, TimeElapsedColumn

    tasks: dict[str, TaskID] = {}
    with bars(BarColumn(), TimeElapsedColumn(), last="doing") as shown:

        def report(name: str, completed: int, total: int, doing: str) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(_plain(name), total=total, doing=doing)
            shown.update(tasks[name], completed=completed, total=total, doing=doing)

        yield report


# tables


def show(measured: Sequence[SetMeasurement], *, jobs: int, curve: bool) -> None:
    out = console()
    out.print(recall_table(measured))
    out.print(cost_table(measured))
    if curve:
        for one in measured:
            out.print(curve_table(one))
    echo(style(legend(measured, jobs=jobs), dim=True))
    for one in measured:
        for reason in (*one.degraded, *one.failures):
            warn(f"{one.name}: {reason}")


def table(title: str, first: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    made.add_column(first, no_wrap=True)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    return made


def recall_table(measured: Sequence[SetMeasurement]) -> Table:
    from rich.text import Text

    from kept.bench.variants import KEPT

    made = table("Recall", "set", "n", "R@1", "R@5", "R@10", "R@2k", "all@5", "MRR", "nDCG", "abst.")
    for one in measured:
        for name, summary in one.summaries.items():
            label = Text(_plain(one.name), style="bold") if name == KEPT else Text(f"  {name}")
            made.add_row(label, *_cells(summary), style=None if name == KEPT else "dim")
            if name == KEPT:
                _add_parts(made, one)
        made.add_section()
    return made


def _add_parts(made: Table, one: SetMeasurement) -> None:
    if 1 < len(one.categories) <= _SHOWN_CATEGORIES:
        for category, summary in one.categories.items():
            made.add_row(f"  · {_plain(category)}", *_cells(summary))
    for label, figures in (("sessions", one.sessions), ("audited", one.audited)):
        if figures:
            made.add_row(f"  · {label}", "", *_figures(figures), "")


def _plain(name: str) -> str:
    """A name, short enough to leave the figures room: the middle is left out, since names of a kind differ at their
    ends."""
    shown = printable(name)
    if len(shown) > _NAME_CHARS and console().width < _WIDE:
        shown = f"{shown[: _NAME_CHARS // 2]}…{shown[-(_NAME_CHARS - _NAME_CHARS // 2 - 1) :]}"
    return shown


def _cells(summary: FigureSummary) -> list[str]:
    return [f"{summary.queries:,}", *_figures(summary.figures), _abstained(summary)]


def _figures(figures: dict[str, float]) -> list[str]:
    from kept.bench.metrics import FIGURES

    return [f"{figures[name]:.3f}" if name in figures else "–" for name in FIGURES]


def _abstained(summary: FigureSummary) -> str:
    """Rightly, then wrongly."""
    return "/".join(_percent(share) for share in (summary.abstained_rightly, summary.abstained_wrongly))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def cost_table(measured: Sequence[SetMeasurement]) -> Table:
    from kept.bench.json_report import calibration_shape

    made = table(
        "Cost and refusals", "set", "docs", "chunks", "indexed", "index", "p50 ms", "p95 ms", "refused", "lost"
    )
    for one in measured:
        calibration = calibration_shape(one)
        made.add_row(
            _plain(one.name),
            f"{one.documents:,}",
            f"{one.index.chunks:,}",
            f"{one.index.seconds:.1f} s",
            size_text(one.index.bytes),
            f"{one.latency['p50_ms']:.1f}",
            f"{one.latency['p95_ms']:.1f}",
            _percent(calibration["refused"]),
            _percent(calibration["lost"]),
        )
    return made


def legend(measured: Sequence[SetMeasurement], *, jobs: int) -> str:
    lines = [
        "R@2k: within the first 2,000 tokens returned. abst.: got nothing, rightly/wrongly.",
        f"refused, lost: nonsense and answers, at min_score {measured[0].min_score:.2f}.",
    ]
    if jobs > 1:
        lines.append(f"{jobs} sets were measured at a time; --jobs 1 gives times that nothing else was in the way of.")
    return "\n".join(lines)


def curve_table(one: SetMeasurement) -> Table:
    made = table(
        f"{_plain(one.name)}: what a threshold refuses, and what it loses",
        "min_score",
        "random words",
        "foreign questions",
        "adversarial",
        "answers lost",
    )
    for point in one.curve:
        shares = (point.random_refused, point.foreign_refused, point.adversarial_refused, point.answers_lost)
        label = f"{point.min_score:.2f}" + (" ←" if point.min_score == one.min_score else "")
        made.add_row(label, *(_percent(share) for share in shares))
    return made
