"""The page of `kept bench --report`: tables and plots in one HTML file, without scripts and without a network.

Names of sets, categories and models are data: every text is escaped.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from kept.bench.figure_text import FIGURE_HEADERS, MISSING, figure_texts, percent_text, right_text, summary_texts
from kept.bench.json_report import calibration_shape
from kept.bench.measurement import SetMeasurement
from kept.bench.query_runner import KEPT
from kept.bench.report_plots import THRESHOLD_LABELS, calibration_plot, recall_plot, threshold_plot
from kept.bench.svg_plot import Plot, draw_plot
from kept.bench.threshold import ALLOWED_LOST, REQUIRED_REFUSED
from kept.durable import write_atomic
from kept.errors import UsageError
from kept.limits import printable_line
from kept.records import GRADES

PAGE = "index.html"
_GENERATOR = '<meta name="generator" content="kept bench">'
_STYLE = os.path.join(os.path.dirname(__file__), "report.css")
_SUMMARY_HEADERS = ("n", *FIGURE_HEADERS, "abst.")
_LEGEND = {
    "R@1, R@5, R@10": "share of the relevant documents in the first 1, 5 and 10 hits.",
    "R@2k": "the same for the first 2,000 tokens returned.",
    "all@5": "share of the queries for which the first 5 hits cover everything relevant.",
    "abst.": "share of the queries that got only weak hits: without an answer/with an answer.",
    "strong, likely, weak": "share of the first hits with this grade that are right, of how many.",
    "refused, lost": "share of nonsense and of answers that are graded weak.",
}

Row = tuple[Sequence[str], Sequence[str]]
"""Names and figures of a table row."""


def check_folder(folder: str) -> str:
    """Return the absolute path of a folder for the page. Raise UsageError if the page cannot be written there.

    Called before a measurement, which may take minutes. Changes nothing.
    """
    folder = os.path.abspath(os.path.expanduser(folder))
    page = os.path.join(folder, PAGE)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder} is not a folder.", hint="Name a folder for the report.")
    if os.path.lexists(page) and not _is_report(page):
        raise UsageError(f"{page} is not a report of Kept, so it is not replaced.", hint="Name another folder.")
    existing = folder
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
        raise UsageError(f"{folder}: {existing} is not a folder that you can write to.", hint="Name another folder.")
    return folder


def _is_report(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return _GENERATOR.encode() in file.read(500)
    except OSError:
        return False


def write_report(folder: str, measurements: Sequence[SetMeasurement], *, jobs: int, version: str, date: dt.date) -> str:
    """Write the page atomically and return its path."""
    path = os.path.join(folder, PAGE)
    write_atomic(path, render_page(measurements, jobs=jobs, version=version, date=date).encode())
    return path


def render_page(measurements: Sequence[SetMeasurement], *, jobs: int, version: str, date: dt.date) -> str:
    with open(_STYLE, encoding="utf-8") as file:
        style = file.read()
    names = ", ".join(_text(measurement.name) for measurement in measurements)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        _GENERATOR,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Recall of {names}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>",
        "<h1>Recall</h1>",
        f'<p class="quiet">Measured by Kept {_text(version)} on {date.isoformat()}.</p>',
        *_iter_overview(measurements, jobs=jobs),
        *(_set_section(measurement, number) for number, measurement in enumerate(measurements, start=1)),
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(parts)


# overview


def _iter_overview(measurements: Sequence[SetMeasurement], *, jobs: int) -> Iterator[str]:
    links = "".join(
        f'<li><a href="#set{number}">{_text(measurement.name)}</a></li>'
        for number, measurement in enumerate(measurements, start=1)
    )
    yield f'<nav aria-label="Sets"><ul>{links}</ul></nav>'
    yield _table("Recall", ("set", "variant"), _SUMMARY_HEADERS, [_recall_rows(entry) for entry in measurements])
    yield _table("Grades", ("set",), (*GRADES, "refused", "lost"), [[_grade_row(entry)] for entry in measurements])
    headers = ("docs", "chunks", "indexed", "index", "p50 ms", "p95 ms", "CPU p50 ms", "CPU p95 ms")
    yield _table("Cost", ("set", "embedder"), headers, [[_cost_row(entry)] for entry in measurements])
    if jobs > 1:
        yield f'<p class="quiet">{jobs} sets were measured in parallel, which slows each of them a little.</p>'
    terms = "".join(f"<dt>{_text(term)}</dt><dd>{_text(meaning)}</dd>" for term, meaning in _LEGEND.items())
    yield f"<dl>{terms}</dl>"


def _recall_rows(measurement: SetMeasurement) -> list[Row]:
    rows: list[Row] = [
        ((measurement.name, name), summary_texts(summary)) for name, summary in measurement.summaries.items()
    ]
    for label, figures in (("sessions", measurement.sessions), ("audited", measurement.audited)):
        if figures:
            rows.append(((measurement.name, f"{KEPT}, {label}"), [MISSING, *figure_texts(figures), MISSING]))
    return rows


def _grade_row(measurement: SetMeasurement) -> Row:
    calibration = calibration_shape(measurement)
    shares = [percent_text(calibration[name]) for name in ("refused", "lost")]
    return (measurement.name,), [*(right_text(measurement.grades[grade]) for grade in GRADES), *shares]


def _cost_row(measurement: SetMeasurement) -> Row:
    index, latency = measurement.index, measurement.latency
    return (measurement.name, index.model or index.provider), [
        f"{measurement.documents:,}",
        f"{index.chunks:,}",
        f"{index.seconds:.1f} s",
        f"{index.bytes / 1e6:,.1f} MB",
        *(f"{latency[name]:.1f}" for name in ("p50_ms", "p95_ms", "cpu_p50_ms", "cpu_p95_ms")),
    ]


# one set


def _set_section(measurement: SetMeasurement, number: int) -> str:
    section = f"set{number}"
    categories: list[Row] = [((name,), summary_texts(summary)) for name, summary in measurement.categories.items()]
    parts = [
        f'<section id="{section}" aria-labelledby="{section}-name">',
        f'<h2 id="{section}-name">{_text(measurement.name)}</h2>',
        f'<p class="quiet">{measurement.documents:,} documents; {measurement.queries:,} queries,'
        f" {measurement.unjudged:,} of them unjudged; {measurement.asked_for:,} hits requested for each.</p>",
        *(
            f'<p class="warning">Warning: {_text(reason)}</p>'
            for reason in (*measurement.degraded, *measurement.failures)
        ),
        '<div class="plots">',
        *_iter_figures(measurement, section),
        "</div>",
        _table(f"Categories of {measurement.name}", ("category",), _SUMMARY_HEADERS, [categories]),
        "</section>",
    ]
    return "\n".join(parts)


def _iter_figures(measurement: SetMeasurement, section: str) -> Iterator[str]:
    yield _figure(
        recall_plot(measurement, f"{section}-tokens"),
        f"At most {measurement.asked_for:,} hits were requested. Hollow: most answers have less text than this.",
        ("tokens", (*measurement.recall_by_tokens, f"{KEPT}: answers this long"), _token_rows(measurement)),
    )
    yield _figure(
        calibration_plot(measurement, f"{section}-calibration"),
        "Above each bar: number of first hits.",
        ("score", ("first hits", "right"), _score_rows(measurement)),
    )
    yield _figure(
        threshold_plot(measurement, f"{section}-bounds"),
        f"Target: at least {REQUIRED_REFUSED:.0%} of nonsense refused, at most {ALLOWED_LOST:.0%} of answers lost.",
        ("bound", [*THRESHOLD_LABELS.values()], _bound_rows(measurement)),
    )


def _token_rows(measurement: SetMeasurement) -> list[Row]:
    by_variant = measurement.recall_by_tokens
    return [
        (
            (f"{point.tokens:,}",),
            [*(f"{points[number].recall:.3f}" for points in by_variant.values()), f"{point.filled:.0%}"],
        )
        for number, point in enumerate(by_variant[KEPT])
    ]


def _score_rows(measurement: SetMeasurement) -> list[Row]:
    return [
        (
            (f"{score_bin.score_from:.1f}–{score_bin.score_to:.1f}",),
            [f"{score_bin.hits:,}", percent_text(score_bin.right / score_bin.hits if score_bin.hits else None)],
        )
        for score_bin in measurement.calibration_curve
    ]


def _bound_rows(measurement: SetMeasurement) -> list[Row]:
    return [
        ((f"{point.min_score:.2f}",), [percent_text(getattr(point, name)) for name in THRESHOLD_LABELS])
        for point in measurement.curve
    ]


def _figure(plot: Plot, note: str, data: tuple[str, Sequence[str], list[Row]]) -> str:
    name, headers, rows = data
    table = _table(plot.title, (name,), headers, [rows])
    details = f"<details><summary>Figures</summary>{table}</details>"
    return (
        f"<figure><h3>{_text(plot.title)}</h3>\n{draw_plot(plot)}\n"
        f"<figcaption>{_text(note)}\n{details}</figcaption></figure>"
    )


# HTML


def _table(caption: str, names: Sequence[str], headers: Sequence[str], bodies: Iterable[list[Row]]) -> str:
    """Return a table in a box that scrolls sideways. Rows of one body share their first name if there are several."""
    top = "".join(f'<th scope="col" class="name">{_text(name)}</th>' for name in names)
    top += "".join(f'<th scope="col">{_text(header)}</th>' for header in headers)
    groups = "\n".join(f"<tbody>\n{_body(rows)}</tbody>" for rows in bodies if rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(caption)}">\n<table>\n'
        f"<caption>{_text(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n{groups}\n</table>\n</div>"
    )


def _body(rows: list[Row]) -> str:
    lines = []
    for number, (names, figures) in enumerate(rows):
        group = ""
        if len(names) > 1 and number == 0:
            group = f'<th scope="rowgroup" class="name" rowspan="{len(rows)}">{_text(names[0])}</th>'
        cells = "".join(f"<td>{_text(figure)}</td>" for figure in figures)
        lines.append(f'<tr>{group}<th scope="row" class="name">{_text(names[-1])}</th>{cells}</tr>\n')
    return "".join(lines)


def _text(text: str) -> str:
    return escape(printable_line(text))
