"""Figures for Prometheus. Labels name routes, agents, models and tools, never a person, a note or a query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from kept import __version__
from kept.base.timings import Labels
from kept.server.live import LiveState
from kept.server.requests import RequestRecord

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServeFigures:
    """All figures of one process. What is timed is counted; the rest is read when somebody asks."""

    def __init__(self, states: Mapping[str, Callable[[], LiveState]], depths: Mapping[str, Callable[[], int]]) -> None:
        """``states`` return the state of the live index of each agent, ``depths`` the length of its queue."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        seconds = partial(Histogram, buckets=_SECONDS, registry=self._registry)
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, labelnames=("agent",), registry=self._registry)
        self._requests = counter("kept_requests", "Requests by route and status.", ("route", "method", "status"))
        self._request_s = seconds("kept_request_seconds", "Time to answer a request.", ("route",))
        self._timed = {
            "search": (
                seconds("kept_search_seconds", "Time of a search."),
                counter("kept_searches_degraded", "Searches that were not complete."),
            ),
            "sync": (
                seconds("kept_sync_seconds", "Time of a sync with changes."),
                counter("kept_sync_failures", "Syncs that were not complete."),
            ),
        }
        self._model_s = seconds("kept_model_call_seconds", "Time of a call of a model.", ("model",))
        self._tools = counter("kept_tool_calls", "Calls of tools.", ("tool", "ok"))
        queue = gauge("kept_queue_depth", "Messages that wait for an answer.")
        for agent, depth in depths.items():
            queue.labels(agent).set_function(depth)
        text = "Age of the last sync while changes wait, in the process that keeps the index current."
        lag = gauge("kept_sync_lag_seconds", text)
        for agent, state in states.items():
            lag.labels(agent).set_function(partial(find_lag_s, state))
        Info("kept_build", "Version of the program.", registry=self._registry).info({"version": __version__})

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def count_request(self, record: RequestRecord) -> None:
        self._requests.labels(record.route, record.method, str(record.status)).inc()
        self._request_s.labels(record.route).observe(record.duration_ms / 1000)

    def observe(self, name: str, took_s: float, labels: Labels) -> None:
        if name in self._timed:
            seconds, failures = self._timed[name]
            seconds.observe(took_s)
            failures.inc(bool(labels.get("failed")))
        elif name == "model_call":
            self._model_s.labels(str(labels["model"])).observe(took_s)
        elif name == "tool_call":
            self._tools.labels(str(labels["tool"]), "true" if labels.get("ok") else "false").inc()


def find_lag_s(look: Callable[[], LiveState]) -> float:
    """Return how old the index is, or 0 if no change waits here. An index that never synced lags by an unknown time."""
    state, now = look(), dt.datetime.now(dt.UTC)
    if state.role != "leader" or not (state.waiting or state.syncing or state.problem):
        return 0.0
    if state.last_sync is None:
        return 1.0
    return max(0.0, (now - dt.datetime.fromisoformat(state.last_sync).astimezone(dt.UTC)).total_seconds())
