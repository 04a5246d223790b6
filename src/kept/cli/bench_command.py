"""kept bench"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from kept.base.records import GRADES
from kept.base.wording import size_text
from kept.cli.output import echo, print_json, progress_bar, style, warn
from kept.cli.root import Globals, setting_pairs
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
_COST_HEADERS = ("set", "docs", "chunks", "indexed", "index", "p50 ms", "p95 ms")

Pair = tuple["SetMeasurement", "SetMeasurement | None"]
"""A measurement, and one of the same set with the settings that it is compared with."""


@click.command("bench")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@click.option("--against", metavar="KEY=VALUE", multiple=True, help="Compare with the same, except for this setting.")
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Use only N queries of each set, evenly spread.")
@click.pass_obj
def command(
    options: Globals,
    folders: tuple[str, ...],
    against: tuple[str, ...],
    sample: int | None,
) -> None:
    """Measure recall on sets of documents and queries.

    DIR... are the sets: documents, queries, and which documents answer which query. Measures with your settings, in a
    temporary folder that is removed afterwards, and compares them with words alone and vectors alone; with --against,
    with the same settings except for one.

    \b
    kept bench my-set
    kept bench my-set --against memory_search.provider=none
    """
    from kept.server.bench.measurement import measure_set, read_sets, set_json

    config = options.load().config
    compared = options.load(settings=dict(setting_pairs(against))).config if against else None
    measured: list[Pair] = []
    # SIGTERM ends this process like an error, so that the temporary folder is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with progress_bar("Measuring") as bar:
        progress = None if bar is None else lambda name, done, total, activity: bar(done, total, f"{name}: {activity}")
        for bench in read_sets(folders):
            measure = partial(measure_set, bench, most_queries=sample, baselines=compared is None, progress=progress)
            measured.append((measure(config), measure(compared) if compared else None))
    if options.as_json:
        print_json({"sets": [set_json(*pair) for pair in measured]})
    else:
        show(measured)


# tables


def show(measured: Sequence[Pair]) -> None:
    for title, headers, rows in (
        ("Recall", ("set", "n", *FIGURE_HEADERS.values(), "abst."), [*_recall_rows(measured)]),
        ("Grades", ("set", *GRADES), [_grade_row(measurement) for measurement, _ in measured]),
        ("Cost", _COST_HEADERS, [_cost_row(measurement) for measurement, _ in measured]),
    ):
        echo(style(title, bold=True))
        echo(f"{table_text(headers, rows, figures=True)}\n")
    echo(style(LEGEND, dim=True))
    for measurement, _ in measured:
        for reason in measurement.degraded:
            warn(f"{measurement.name}: {reason}")


def _recall_rows(measured: Sequence[Pair]) -> Iterator[list[str]]:
    for measurement, other in measured:
        summary = measurement.summary
        yield [measurement.name, *_summary_texts(summary)]
        for name, baseline in measurement.baselines.items():
            yield [f"{name} alone", *_summary_texts(baseline)]
        if other is not None:
            theirs = other.summary
            changes = {name: value - theirs.figures[name] for name, value in summary.figures.items()}
            yield ["against", *_summary_texts(theirs)]
            yield ["difference", "", *_figure_texts(changes, "+.3f"), ""]
        if 1 < len(measurement.categories) <= _SHOWN_CATEGORIES:
            for category, part in measurement.categories.items():
                yield [f"· {category}", *_summary_texts(part)]


def _summary_texts(summary: FigureSummary) -> list[str]:
    """Return the number of queries, the figures, and the shares of correct and of wrong abstentions."""
    shares = (summary.abstained_rightly, summary.abstained_wrongly)
    abstained = "/".join(MISSING if share is None else f"{share:.0%}" for share in shares)
    return [f"{summary.queries:,}", *_figure_texts(summary.figures), abstained]


def _figure_texts(figures: Mapping[str, float], shape: str = ".3f") -> list[str]:
    return [format(figures[name], shape) if name in figures else MISSING for name in FIGURE_HEADERS]


def _cost_row(measurement: SetMeasurement) -> list[str]:
    return [
        measurement.name,
        f"{measurement.documents:,}",
        f"{measurement.index.chunks:,}",
        f"{measurement.index.seconds:.1f} s",
        size_text(measurement.index.bytes),
        f"{measurement.latency['p50_ms']:.1f}",
        f"{measurement.latency['p95_ms']:.1f}",
    ]


def _grade_row(measurement: SetMeasurement) -> list[str]:
    return [measurement.name, *(_right_text(measurement.grades[grade]) for grade in GRADES)]


def _right_text(figures: GradeFigures) -> str:
    return f"{figures.right / figures.hits:.0%} of {figures.hits:,}" if figures.hits else MISSING
