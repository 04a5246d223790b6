"""Recall: measure how well questions find their answers, and read the report with its plots."""

from __future__ import annotations

import datetime as dt
import os

from starlette.responses import HTMLResponse, Response

from kept.errors import NoteNotFound
from kept.web.visit import Page, Screen, Visit

_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
"""The report is a page of its own with its style inside. It may run nothing and load nothing."""


def show_recall(visit: Visit) -> Response:
    run = visit.site.recall
    return visit.render(
        "recall.html",
        progress=run.progress(),
        measured=_measured(run.report_path),
        own_set=run.own_set,
        has_own_set=os.path.isdir(run.own_set),
    )


def start_measuring(visit: Visit) -> Response:
    visit.site.recall.start(os.path.expanduser(visit.form.get("folder", "").strip()))
    return visit.redirect("/recall")


def show_report(visit: Visit) -> Response:
    try:
        with open(visit.site.recall.report_path, encoding="utf-8") as file:
            text = file.read()
    except OSError as exc:
        raise NoteNotFound("There is no report yet.", hint="Measure first.") from exc
    headers = {"Content-Security-Policy": _REPORT_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return HTMLResponse(text, headers=headers)


def _measured(path: str) -> dt.datetime | None:
    """Return when the report was written, or None if there is none."""
    try:
        return dt.datetime.fromtimestamp(os.stat(path).st_mtime).astimezone()
    except OSError:
        return None


SCREEN = Screen(
    name="bench",
    label="Recall",
    home="/recall",
    pages=(
        Page("/recall", show_recall, "read"),
        Page("/recall/run", start_measuring, "admin", ("POST",)),
        Page("/recall/report", show_report, "read"),
    ),
    key="b",
)
