"""kept bench"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kept.bench.figure_text import FIGURE_HEADERS, figure_texts, percent_text, right_text, summary_texts
from kept.cli.command_arguments import setting_pairs
from kept.cli.output import bars, console, echo, json_option, print_json, printable, style, warn
from kept.cli.root import Globals
from kept.errors import UsageError
from kept.records import GRADES, LIKELY_FROM
from kept.tools.record_json import to_json
from kept.wording import plural, size_text

if TYPE_CHECKING:
    from rich.table import Table

    from kept.bench.measurement import SetMeasurement
    from kept.bench.set_workers import Report

_SHOWN_CATEGORIES = 12
"""Sets with more categories are shown without them."""
_NAME_CHARS, _WIDE = 17, 100


@click.command("bench")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--provider", metavar="NAME", help="Measure with this embedding provider.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Measure with one setting changed.")
@click.option("--no-baselines", is_flag=True, help="Measure only the current settings: three times as fast.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Use only N queries of each set, evenly spread.")
@click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Sets to measure in parallel (default: one per core)."
)
@click.option("--init", "starter", is_flag=True, help="Write a starter set, made from your notes, to DIR.")
@click.option("--curve", is_flag=True, help="Show what each bound between weak and likely would refuse and lose.")
@click.option("--report", "report_folder", metavar="DIR", help="Also write a page with tables and plots to DIR.")
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
    report_folder: str | None,
    as_json: bool,
) -> None:
    """Measure recall on sets of documents and queries.

    DIR... are the sets: documents, queries, and which documents answer which query. With --init, DIR is the folder for
    a starter set. Measures with your settings, in a temporary folder that is removed afterwards.
    """
    if starter:
        if report_folder is not None:
            raise UsageError("--report needs a measurement; --init makes none.", hint="Measure the set afterwards.")
        make_starter(options, folders, as_json=as_json)
        return
    from kept.bench.json_report import sets_shape
    from kept.bench.measurement import MeasurePlan
    from kept.bench.report_page import check_folder
    from kept.bench.set_workers import measure_sets, read_sets, stop_on_sigterm
    from kept.embedding.local_model import count_cores

    changed = setting_pairs(settings) | ({"memory_search.provider": provider} if provider else {})
    config = options.load(settings=changed).config
    plan = MeasurePlan(baselines=(), sample=sample) if no_baselines else MeasurePlan(sample=sample)
    sets = read_sets(folders)
    report_folder = None if report_folder is None else check_folder(report_folder)
    jobs = min(jobs or count_cores(), len(sets))
    stop_on_sigterm()
    with progress_of_sets() as report:
        measured = measure_sets(sets, config, plan, jobs=jobs, report=report)
    if not as_json:
        show(measured, jobs=jobs, curve=curve)  # first: the figures are printed even if the page cannot be written
    page = None if report_folder is None else write_page(report_folder, measured, jobs=jobs)
    if as_json:
        print_json(sets_shape(measured, jobs=jobs) | ({} if page is None else {"report": page}))
    elif page is not None:
        echo(f"Wrote the report to {page}.")


def write_page(folder: str, measured: Sequence[SetMeasurement], *, jobs: int) -> str:
    from kept import __version__
    from kept.bench.report_page import write_report
    from kept.clock import SystemClock

    return write_report(folder, measured, jobs=jobs, version=__version__, date=SystemClock().now().date())


def make_starter(options: Globals, folders: tuple[str, ...], *, as_json: bool) -> None:
    from kept.bench.starter import write_starter

    if len(folders) != 1:
        raise UsageError("--init writes one set.", hint="For example: kept bench --init my-set")
    starter = write_starter(options.load().config, folders[0])
    if as_json:
        print_json(to_json(starter))
        return
    queries = plural(starter.queries, "query", "queries")
    echo(f"Wrote {plural(starter.documents, 'passage')} and {queries} to {starter.folder}.")
    echo("Its README.md explains how to adapt it. Measure it with: kept bench " + shlex.quote(folders[0]))


@contextmanager
def progress_of_sets() -> Iterator[Report | None]:
    """Show a bar for each set on a terminal. Yield the callback that moves them."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, TaskID, TimeElapsedColumn

    tasks: dict[str, TaskID] = {}
    with bars(BarColumn(), TimeElapsedColumn(), last="activity") as shown:

        def report(name: str, completed: int, total: int, activity: str) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(_short(name), total=total, activity=activity)
            shown.update(tasks[name], completed=completed, total=total, activity=activity)

        yield report


# tables


def show(measured: Sequence[SetMeasurement], *, jobs: int, curve: bool) -> None:
    out = console()
    out.print(recall_table(measured))
    out.print(grade_table(measured))
    out.print(cost_table(measured))
    if curve:
        for measurement in measured:
            out.print(curve_table(measurement))
    echo(style(legend(measured, jobs=jobs), dim=True))
    for measurement in measured:
        for reason in (*measurement.degraded, *measurement.failures):
            warn(f"{measurement.name}: {reason}")


def table(title: str, first: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    new = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=0)
    new.add_column(first, no_wrap=True)
    for column in columns:
        new.add_column(column, justify="right", no_wrap=True)
    return new


def recall_table(measured: Sequence[SetMeasurement]) -> Table:
    from rich.text import Text

    from kept.bench.query_runner import KEPT

    rows = table("Recall", "set", "n", *FIGURE_HEADERS, "abst.")
    for measurement in measured:
        for name, summary in measurement.summaries.items():
            label = Text(_short(measurement.name), style="bold") if name == KEPT else Text(f"  {name}")
            rows.add_row(label, *summary_texts(summary), style=None if name == KEPT else "dim")
            if name == KEPT:
                _add_parts(rows, measurement)
        rows.add_section()
    return rows


def _add_parts(rows: Table, measurement: SetMeasurement) -> None:
    if 1 < len(measurement.categories) <= _SHOWN_CATEGORIES:
        for category, summary in measurement.categories.items():
            rows.add_row(f"  · {_short(category)}", *summary_texts(summary))
    for label, figures in (("sessions", measurement.sessions), ("audited", measurement.audited)):
        if figures:
            rows.add_row(f"  · {label}", "", *figure_texts(figures), "")


def _short(name: str) -> str:
    """Shorten a name on a narrow terminal to leave room for the figures. The middle is dropped, since similar names
    differ at their ends."""
    shown = printable(name)
    if len(shown) > _NAME_CHARS and console().width < _WIDE:
        shown = f"{shown[: _NAME_CHARS // 2]}…{shown[-(_NAME_CHARS - _NAME_CHARS // 2 - 1) :]}"
    return shown


def cost_table(measured: Sequence[SetMeasurement]) -> Table:
    rows = table("Cost", "set", "docs", "chunks", "indexed", "index", "p50 ms", "p95 ms")
    for measurement in measured:
        rows.add_row(
            _short(measurement.name),
            f"{measurement.documents:,}",
            f"{measurement.index.chunks:,}",
            f"{measurement.index.seconds:.1f} s",
            size_text(measurement.index.bytes),
            f"{measurement.latency['p50_ms']:.1f}",
            f"{measurement.latency['p95_ms']:.1f}",
        )
    return rows


def grade_table(measured: Sequence[SetMeasurement]) -> Table:
    from kept.bench.json_report import calibration_shape

    rows = table("Grades", "set", *GRADES, "refused", "lost")
    for measurement in measured:
        calibration = calibration_shape(measurement)
        rows.add_row(
            _short(measurement.name),
            *(right_text(measurement.grades[grade]) for grade in GRADES),
            percent_text(calibration["refused"]),
            percent_text(calibration["lost"]),
        )
    return rows


def legend(measured: Sequence[SetMeasurement], *, jobs: int) -> str:
    lines = [
        "R@2k: within the first 2,000 tokens returned. abst.: nothing but weak hits, correctly/wrongly.",
        "refused, lost: share of nonsense and of answers that are graded weak.",
        "strong, likely, weak: share of first hits with this grade that are right, of how many.",
    ]
    if jobs > 1:
        lines.append(f"{jobs} sets were measured in parallel; use --jobs 1 for undisturbed times.")
    return "\n".join(lines)


def curve_table(measurement: SetMeasurement) -> Table:
    rows = table(
        f"{_short(measurement.name)}: what each bound between weak and likely refuses and loses",
        "score",
        "random words",
        "foreign questions",
        "adversarial",
        "answers lost",
    )
    bound = max(measurement.min_score, LIKELY_FROM)
    for point in measurement.curve:
        shares = (point.random_refused, point.foreign_refused, point.adversarial_refused, point.answers_lost)
        label = f"{point.min_score:.2f}" + (" ←" if point.min_score == bound else "")
        rows.add_row(label, *(percent_text(share) for share in shares))
    return rows
