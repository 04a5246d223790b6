"""Health and cost: the index, what is going on now, what models used by day, providers, models, and the checks."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from starlette.responses import Response

from kept.app import list_providers
from kept.doctor import examine, examine_agents
from kept.embedding.model_catalogue import CATALOGUE, is_pulled
from kept.reports import ModelSpending, Spending
from kept.web.charts import BarChart, last_days, make_bar_chart
from kept.web.live_events import read_activity, stream_events
from kept.web.visit import Page, Screen, Visit

DAYS = 30


def show_health(visit: Visit) -> Response:
    status = visit.memory.status()
    today = visit.memory.clock.now().date()
    return visit.render(
        "health.html",
        memory_status=status,
        activity=read_activity(visit.site),
        chart=chart_spending(status.model_spending, status.spending, today),
        spending=_days_first(status.model_spending),
        embedding=_days_first(status.spending),
        budget=status.model_budget_tokens,
        used_today=status.model_tokens_today,
        days=DAYS,
    )


def show_checks(visit: Visit) -> Response:
    """Run every check of `kept doctor`. It reads all files, so it has a page of its own."""
    checks = [*examine(visit.memory), *examine_agents(visit.site.loaded)]
    return visit.render("checks.html", checks=checks, wrong=[check for check in checks if not check.ok])


def show_providers(visit: Visit) -> Response:
    """List the embedding providers and models. Servers of the user's own are asked whether they run."""
    config = visit.site.config
    models = [(model, is_pulled(config.models_folder, model)) for model in CATALOGUE.values()]
    return visit.render("providers.html", providers=list_providers(config), models=models)


def chart_spending(
    models: Iterable[ModelSpending], embeddings: Iterable[Spending], today: dt.date, days: int = DAYS
) -> BarChart:
    """Return the tokens of the last days, by purpose."""
    amounts: dict[tuple[dt.date, str], int] = {}
    used = [(spent.day, spent.purpose, spent.tokens) for spent in models]
    used += [(spent.day, "embedding", spent.tokens) for spent in embeddings]
    for day_text, purpose, tokens in used:
        try:
            key = dt.date.fromisoformat(day_text), purpose
        except ValueError:
            continue  # the ledger may have been edited
        amounts[key] = amounts.get(key, 0) + tokens
    return make_bar_chart(amounts, last_days(today, days))


def _days_first(spending: Iterable[ModelSpending | Spending]) -> list[ModelSpending | Spending]:
    """Return what was spent in the last days, the newest first."""
    return sorted(spending, key=lambda spent: spent.day, reverse=True)[: 3 * DAYS]


SCREEN = Screen(
    name="health",
    label="Health and cost",
    home="/health",
    pages=(
        Page("/health", show_health, "read"),
        Page("/health/checks", show_checks, "read"),
        Page("/health/providers", show_providers, "read"),
        Page("/events", stream_events, "read"),
    ),
    key="o",
)
