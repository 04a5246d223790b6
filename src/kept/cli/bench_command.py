"""kept bench"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kept.base.records import GRADES
from kept.cli.output import echo, print_json, progress_bar, style, warn
from kept.cli.root import Globals
from kept.cli.terminal_layout import table_text

if TYPE_CHECKING:
    from kept.server.bench.measurement import FigureSummary, GradeFigures, SetMeasurement

FIGURE_HEADERS = {
    "recall@1": "R@1",
    "recall@5": "R@5",
    "recall@10": "R@10",
    "recall@2000tok": "R@2k",
    "mrr@10": "MRR",
}
LEGEND = (
    "R@2k: within the first 2,000 tokens returned. abst.: nothing but weak hits, correctly/wrongly.\n"
    "strong, likely, weak: share of first hits with this grade that are right, of how many."
)
MISSING = "–"
_SHOWN_CATEGORIES = 12
"""Sets with more categories are shown without them."""


@click.command("bench")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Use only N queries of each set, evenly spread.")
@click.pass_obj
def command(
    options: Globals,
    folders: tuple[str, ...],
    sample: int | None,
) -> None:
    """Measure recall on sets of documents and queries.

    DIR... are the sets: documents, queries, and which documents answer which query. Measures with your settings, in a
    temporary folder that is removed afterwards, and compares them with words alone and vectors alone.

    \b
    kept bench my-set
    kept bench my-set --set memory_search.provider=none
    """
    from kept.server.bench.measurement import measure_set, read_sets, set_json

    config = options.load().config
    # SIGTERM ends this process like an error, so that the temporary folder is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with progress_bar("Measuring") as bar:
        progress = None if bar is None else lambda name, done, total, activity: bar(done, total, f"{name}: {activity}")
        measured = [measure_set(bench, config, most_queries=sample, progress=progress) for bench in read_sets(folders)]
    if options.as_json:
        print_json({"sets": [*map(set_json, measured)]})
    else:
        show(measured)


# tables


def show(measured: Sequence[SetMeasurement]) -> None:
    for title, headers, rows in (
        ("Recall", ("set", "n", *FIGURE_HEADERS.values(), "abst."), [*_recall_rows(measured)]),
        ("Grades", ("set", *GRADES), [_grade_row(measurement) for measurement in measured]),
    ):
        echo(style(title, bold=True))
        echo(f"{table_text(headers, rows, figures=True)}\n")
    echo(style(LEGEND, dim=True))
    for measurement in measured:
        for reason in measurement.degraded:
            warn(f"{measurement.name}: {reason}")


def _recall_rows(measured: Sequence[SetMeasurement]) -> Iterator[list[str]]:
    for measurement in measured:
        yield [measurement.name, *_summary_texts(measurement.summary)]
        for name, baseline in measurement.baselines.items():
            yield [f"{name} alone", *_summary_texts(baseline)]
        if 1 < len(measurement.categories) <= _SHOWN_CATEGORIES:
            for category, part in measurement.categories.items():
                yield [f"· {category}", *_summary_texts(part)]


def _summary_texts(summary: FigureSummary) -> list[str]:
    """Return the number of queries, the figures, and the shares of correct and of wrong abstentions."""
    shares = (summary.abstained_rightly, summary.abstained_wrongly)
    abstained = "/".join(MISSING if share is None else f"{share:.0%}" for share in shares)
    figures = (format(summary.figures[name], ".3f") if name in summary.figures else MISSING for name in FIGURE_HEADERS)
    return [f"{summary.queries:,}", *figures, abstained]


def _grade_row(measurement: SetMeasurement) -> list[str]:
    return [measurement.name, *(_right_text(measurement.grades[grade]) for grade in GRADES)]


def _right_text(figures: GradeFigures) -> str:
    return f"{figures.right / figures.hits:.0%} of {figures.hits:,}" if figures.hits else MISSING
