"""Health and cost: the index, what is going on now, what models used by day, and the checks."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from contextlib import suppress

from starlette.responses import Response

from kept.base.reports import ModelSpending, Spending
from kept.errors import KeptError
from kept.gateway.inbox import InboxState, find_inbox_state
from kept.server.doctor import examine, examine_agents
from kept.server.live import LiveState
from kept.server.web.visit import Page, Screen, Visit

DAYS = 30


def show_health(visit: Visit) -> Response:
    site, status = visit.site, visit.memory.status()
    inbox: InboxState | None = None
    with suppress(KeptError, OSError):  # the page of the checks reports a file that cannot be read
        inbox = find_inbox_state(site.config)
    first = (visit.memory.clock.now() - dt.timedelta(days=DAYS - 1)).date().isoformat()
    totals = Counter[str]()
    used: list[ModelSpending | Spending] = [*status.model_spending, *status.spending]
    for spent in used:
        if spent.day >= first:
            totals[spent.purpose if isinstance(spent, ModelSpending) else "embedding"] += spent.tokens
    return visit.render(
        "health.html",
        memory_status=status,
        live=site.live.state() if site.live else LiveState(),
        inbox=inbox,
        days=DAYS,
        totals=[(purpose, tokens) for purpose, tokens in totals.most_common() if tokens],
    )


def show_checks(visit: Visit) -> Response:
    """Run every check of `kept doctor`. It reads all files, so it has a page of its own."""
    checks = [*examine(visit.memory), *examine_agents(visit.site.loaded)]
    return visit.render("checks.html", checks=checks, wrong=[check for check in checks if not check.ok])


SCREEN = Screen(
    name="health",
    label="Health and cost",
    home="/health",
    pages=(Page("/health", show_health, "read"), Page("/health/checks", show_checks, "read")),
    key="o",
)
