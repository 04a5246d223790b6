"""Health and cost: the index, what is going on now, what models used by day, providers, models, and the checks.

A browser is told when the state has changed, and fetches the page then.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable

from starlette.responses import Response, StreamingResponse

from kept.base.reports import ModelSpending, Spending
from kept.base.values import frozen
from kept.embedding.model_catalogue import CATALOGUE, is_pulled
from kept.errors import KeptError
from kept.gateway.app import list_providers
from kept.gateway.inbox import InboxState, find_inbox_state
from kept.server.doctor import examine, examine_agents
from kept.server.live import LiveState
from kept.server.web.charts import make_bars
from kept.server.web.site import Site
from kept.server.web.visit import Page, Screen, Visit

DAYS = 30
_STREAM_POLLS = 600
"""Looks at the state for each connection. The browser connects again by itself, and a lost one ends."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@frozen
class Activity:
    """Current state of the index, of messages that wait, and of changes to review."""

    live: LiveState
    inbox: InboxState | None
    review: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def read_activity(site: Site) -> Activity:
    try:
        inbox = find_inbox_state(site.config)
        waiting = site.memory.review.count()
    except (KeptError, OSError):  # the page of the checks reports a file that cannot be read
        inbox, waiting = None, 0
    return Activity(site.live.state() if site.live else LiveState(), inbox, waiting)


def show_health(visit: Visit) -> Response:
    status = visit.memory.status()
    today = visit.memory.clock.now().date()
    days = [today - dt.timedelta(days=back) for back in reversed(range(DAYS))]
    tokens = tokens_by_day(status.model_spending, status.spending)
    totals = sum((tokens[day] for day in days if day in tokens), Counter[str]())
    return visit.render(
        "health.html",
        memory_status=status,
        activity=read_activity(visit.site),
        bars=make_bars(tokens, days),
        totals=dict(totals.most_common()),
        spending=_days_first(status.model_spending),
        embedding=_days_first(status.spending),
        budget=status.model_budget_tokens,
        used_today=status.model_tokens_today,
        days=days,
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


def tokens_by_day(models: Iterable[ModelSpending], embeddings: Iterable[Spending]) -> dict[dt.date, Counter[str]]:
    """Return the tokens of each day, by purpose."""
    used = [(spent.day, spent.purpose, spent.tokens) for spent in models]
    used += [(spent.day, "embedding", spent.tokens) for spent in embeddings]
    tokens: dict[dt.date, Counter[str]] = {}
    for day, purpose, number in used:
        try:
            tokens.setdefault(dt.date.fromisoformat(day), Counter())[purpose] += number
        except ValueError:
            continue  # the ledger may have been edited
    return tokens


def _days_first(spending: Iterable[ModelSpending | Spending]) -> list[ModelSpending | Spending]:
    """Return what was spent in the last days, the newest first."""
    return sorted(spending, key=lambda spent: spent.day, reverse=True)[: 3 * DAYS]


async def stream_events(visit: Visit) -> Response:
    """Answer with a stream of events, one for every change of the activity."""
    return StreamingResponse(_events(visit), media_type="text/event-stream", headers=_HEADERS)


async def _events(visit: Visit) -> AsyncIterator[bytes]:
    known = ""
    for _ in range(_STREAM_POLLS):
        if visit.site.is_stopping():
            return
        digest = (await asyncio.to_thread(read_activity, visit.site)).digest
        if digest != known:
            known = digest
            yield f"data: {digest}\n\n".encode()
        else:
            yield b": nothing new\n\n"  # notices a browser that is gone
        await asyncio.sleep(visit.site.poll_s)


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
