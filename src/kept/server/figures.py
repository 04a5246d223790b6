"""Figures for Prometheus. Labels name routes, agents, models and tools, never a person, a note or a query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from kept import __version__
from kept.base.timings import Labels
from kept.errors import KeptError
from kept.index.status import model_cost
from kept.memory import Memory
from kept.models.ledger import open_embedding_ledger, open_model_ledger
from kept.server.live import LiveState
from kept.server.requests import RequestRecord

if TYPE_CHECKING:
    from prometheus_client import Metric

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServeFigures:
    """All figures of one process. What is timed is counted; the rest is read when somebody asks."""

    def __init__(
        self,
        memories: Iterable[Memory],
        live_states: Callable[[], Mapping[str, LiveState]],
        queue_depths: Callable[[], Mapping[str, int]],
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "kept_requests", "Requests by route and status.", ("route", "method", "status"), registry=registry
        )
        self._request_s = Histogram(
            "kept_request_seconds", "Time to answer a request.", ("route",), buckets=_SECONDS, registry=registry
        )
        self._timed = {
            "search": (
                Histogram("kept_search_seconds", "Time of a search.", buckets=_SECONDS, registry=registry),
                Counter("kept_searches_degraded", "Searches that were not complete.", registry=registry),
            ),
            "sync": (
                Histogram("kept_sync_seconds", "Time of a sync with changes.", buckets=_SECONDS, registry=registry),
                Counter("kept_sync_failures", "Syncs that were not complete.", registry=registry),
            ),
        }
        self._model_s = Histogram(
            "kept_model_call_seconds", "Time of a call of a model.", ("model",), buckets=_SECONDS, registry=registry
        )
        self._tools = Counter("kept_tool_calls", "Calls of tools.", ("tool", "ok"), registry=registry)
        registry.register(StateCollector(tuple(memories), live_states, queue_depths))

    def render(self) -> tuple[bytes, str]:
        """Return all figures in the text format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def count_request(self, record: RequestRecord) -> None:
        self._requests.labels(record.route, record.method, str(record.status)).inc()
        self._request_s.labels(record.route).observe(record.took_s)

    def observe(self, name: str, took_s: float, labels: Labels) -> None:
        """Count what was timed."""
        if name in self._timed:
            seconds, failures = self._timed[name]
            seconds.observe(took_s)
            failures.inc(bool(labels.get("failed")))
        elif name == "model_call":
            self._model_s.labels(str(labels["model"])).observe(took_s)
        elif name == "tool_call":
            self._tools.labels(str(labels["tool"]), "true" if labels.get("ok") else "false").inc()


class StateCollector(Collector):
    """Figures that are read when somebody asks: queues, the live index, and the ledgers."""

    def __init__(
        self,
        memories: tuple[Memory, ...],
        live_states: Callable[[], Mapping[str, LiveState]],
        queue_depths: Callable[[], Mapping[str, int]],
    ) -> None:
        self._memories = memories
        self._live_states = live_states
        self._queue_depths = queue_depths

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing is read before somebody asks

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("kept_build_info", "Version of the program.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
        queue = GaugeMetricFamily(
            "kept_queue_depth", "Messages that wait for an answer, in the process that answers.", labels=("agent",)
        )
        for agent, depth in self._queue_depths().items():
            queue.add_metric((agent,), depth)
        yield queue
        lag = GaugeMetricFamily(
            "kept_sync_lag_seconds",
            "Age of the last sync while changes wait, in the process that keeps the index current.",
            labels=("agent",),
        )
        for agent, state in self._live_states().items():
            if state.role == "leader":
                lag.add_metric((agent,), find_lag_s(state, dt.datetime.now(dt.UTC)))
        yield lag
        yield from self._collect_usage()

    def _collect_usage(self) -> Iterator[Metric]:
        tokens = GaugeMetricFamily(
            "kept_tokens", "Tokens of models and embedders, by the ledger.", labels=("agent", "model", "kind")
        )
        cost = GaugeMetricFamily("kept_cost_usd", "Cost of what has a price, by the ledger.", labels=("agent", "model"))
        for memory in self._memories:
            sums, costs = add_up_usage(memory)
            for (model, kind), count in sums.items():
                tokens.add_metric((memory.config.agent_id, model, kind), count)
            for model, usd in costs.items():
                cost.add_metric((memory.config.agent_id, model), usd)
        yield tokens
        yield cost


def find_lag_s(state: LiveState, now: dt.datetime) -> float:
    """Return how old the index is, or 0 if no change waits. An index that never synced lags by an unknown time."""
    if not state.waiting and not state.syncing and not state.problem:
        return 0.0
    if state.last_sync is None:
        return 1.0
    return max(0.0, (now - dt.datetime.fromisoformat(state.last_sync).astimezone(dt.UTC)).total_seconds())


def add_up_usage(memory: Memory) -> tuple[dict[tuple[str, str], int], dict[str, float]]:
    """Return the tokens by model and kind, and the cost by model."""
    sums: dict[tuple[str, str], int] = {}
    costs: dict[str, float] = {}
    config, clock = memory.config, memory.clock
    try:
        for spent in open_model_ledger(config, clock).by_day():
            for kind, count in (("input", spent.input), ("output", spent.output)):
                sums[spent.model, kind] = sums.get((spent.model, kind), 0) + count
            usd = model_cost(spent, config.agent.model.prices.get(spent.model))
            if usd is not None:
                costs[spent.model] = costs.get(spent.model, 0.0) + usd
        for embedded in open_embedding_ledger(config, clock).by_day():
            key = (embedded.model, "embedding")
            sums[key] = sums.get(key, 0) + embedded.tokens
            if embedded.cost_usd is not None:
                costs[embedded.model] = costs.get(embedded.model, 0.0) + embedded.cost_usd
    except KeptError:
        pass  # a ledger that cannot be read is reported by `kept doctor`
    return sums, costs
