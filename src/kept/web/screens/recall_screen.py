"""Recall: measure how well questions find their answers, and read the figures."""

from __future__ import annotations

import os

from starlette.responses import Response

from kept.web.visit import Page, Screen, Visit


def show_recall(visit: Visit) -> Response:
    run = visit.site.recall
    return visit.render(
        "recall.html",
        progress=run.progress(),
        last=run.read_figures(),
        own_set=run.own_set,
        has_own_set=os.path.isdir(run.own_set),
    )


def start_measuring(visit: Visit) -> Response:
    visit.site.recall.start(os.path.expanduser(visit.form.get("folder", "").strip()))
    return visit.redirect("/recall")


SCREEN = Screen(
    name="bench",
    label="Recall",
    home="/recall",
    pages=(
        Page("/recall", show_recall, "read"),
        Page("/recall/run", start_measuring, "admin", ("POST",)),
    ),
    key="b",
)
