"""kept bench"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from kept.base.records import GRADES
from kept.cli.options import kept_command, option
from kept.cli.output import bold, dim, progress_bar, warn_all
from kept.cli.root import Globals
from kept.cli.terminal_layout import table_text

FIGURE_HEADERS = {"recall@1": "R@1", "recall@5": "R@5", "recall@10": "R@10", "recall@2000tok": "R@2k", "mrr@10": "MRR"}
LEGEND = (
    "R@2k: within the first 2,000 tokens returned. abst.: nothing but weak hits, correctly/wrongly.\n"
    "strong, likely, weak: share of first hits with this grade that are right, of how many."
)
MISSING = "–"
_BASELINES = ("keyword", "vector")
_SHOWN_CATEGORIES = 12
"""Sets with more categories are shown without them."""


@kept_command("bench")
@click.argument("folders", metavar="DIR...", nargs=-1, required=True)
@option("--sample", "N", "Use only N queries of each set, evenly spread.", type=click.IntRange(1))
def command(options: Globals, folders: tuple[str, ...], sample: int | None) -> None:
    """Measure recall on sets of documents and queries.

    DIR... are the sets: documents, queries, and which documents answer which query. Measures with your settings, in a
    temporary folder that is removed afterwards, and compares them with words alone and vectors alone.

    \b
    kept bench my-set
    kept bench my-set --set memory_search.provider=none
    """
    from kept.server.bench.measurement import measure_set, read_sets

    config = options.load().config
    # SIGTERM ends this process like an error, so that the temporary folder is removed.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with progress_bar("Measuring") as bar:
        progress = None if bar is None else lambda name, done, total, activity: bar(done, total, f"{name}: {activity}")
        measured = [measure_set(bench, config, most_queries=sample, progress=progress) for bench in read_sets(folders)]
    options.report({"sets": measured}, _table_lines(measured))


# tables


def _table_lines(measured: Sequence[dict[str, Any]]) -> Iterator[str]:
    headers = ("set", "n", *FIGURE_HEADERS.values(), "abst.")
    yield from (bold("Recall"), f"{table_text(headers, _recall_rows(measured), figures=True)}\n")
    grades = ([measurement["set"], *map(_grade_text, measurement["grades"].values())] for measurement in measured)
    yield from (bold("Grades"), f"{table_text(('set', *GRADES), grades, figures=True)}\n", dim(LEGEND))
    warn_all(f"{measurement['set']}: {reason}" for measurement in measured for reason in measurement["degraded"])


def _recall_rows(measured: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for measurement in measured:
        yield [measurement["set"], *_summary_texts(measurement["kept"])]
        for name in _BASELINES:
            if name in measurement:
                yield [f"{name} alone", *_summary_texts(measurement[name])]
        if 1 < len(measurement["categories"]) <= _SHOWN_CATEGORIES:
            for category, part in measurement["categories"].items():
                yield [f"· {category}", *_summary_texts(part)]


def _summary_texts(summary: dict[str, Any]) -> list[str]:
    """Return the number of queries, the figures, and the shares of correct and of wrong abstentions."""
    shares = (summary["abstained_rightly"], summary["abstained_wrongly"])
    abstained = "/".join(MISSING if share is None else f"{share:.0%}" for share in shares)
    figures = (MISSING if summary[name] is None else f"{summary[name]:.3f}" for name in FIGURE_HEADERS)
    return [f"{summary['queries']:,}", *figures, abstained]


def _grade_text(grade: dict[str, int]) -> str:
    return f"{grade['right'] / grade['hits']:.0%} of {grade['hits']:,}" if grade["hits"] else MISSING
