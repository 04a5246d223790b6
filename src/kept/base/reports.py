"""Reports about the index, as values: a sync, usage and cost, and the state of the memory."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from kept.base.records import Problem
from kept.base.values import frozen

if TYPE_CHECKING:
    import datetime as dt


@frozen
class SyncReport:
    """Counts and problems of one sync. ``ok`` is False if ``failures`` has any."""

    files: int = 0
    indexed: int = 0
    """Files whose text was new or changed."""
    removed: int = 0
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    """Texts that were embedded. Zero if all were in the cache."""
    cached: int = 0
    pending: int = 0
    """Chunks that are found by word but not yet by meaning, because the embedder failed."""
    rebuilt: str | None = None
    """Reason why the whole index was rebuilt, or None."""
    problems: tuple[Problem, ...] = ()
    failures: tuple[str, ...] = ()
    took_ms: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failures


@frozen
class Usage:
    """Usage of an embedder since it was created."""

    calls: int = 0
    """HTTP calls, including failed ones and retries."""
    retries: int = 0
    texts: int = 0
    tokens: int = 0
    """Count of the provider, or our estimate, which tends to be too high."""


@frozen
class Spending:
    """Usage of one embedder, on one day or by one command."""

    provider: str
    model: str
    day: str = ""
    calls: int = 0
    texts: int = 0
    tokens: int = 0
    cached: int = 0
    """Texts whose vectors were in the cache."""
    retries: int = 0
    cost_usd: float | None = None
    """None if the price is not known."""


@frozen
class BatchUnderWay:
    """Texts in a running job of a provider's batch API."""

    provider: str
    texts: int
    since: dt.datetime
    """Start of the job, local time."""


@frozen
class ModelSpending:
    """Usage of one chat model for one purpose, on one day or by one call."""

    provider: str
    model: str
    purpose: str
    day: str = ""
    calls: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that the provider had cached."""
    failures: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output


@frozen
class Status:
    """The state of one agent's memory."""

    workspace: str
    index_path: str
    agent: str
    provider: str
    requested_provider: str
    model: str | None
    dims: int | None
    cache_max_entries: int
    backend: str = "builtin"
    """Backend that answers searches first."""
    extra_paths: tuple[str, ...] = ()
    """Folders and files outside of the workspace that are indexed too."""
    files: int = 0
    chunks: int = 0
    source_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    dirty: bool = False
    changed_files: int = 0
    pending: int = 0
    index_bytes: int = 0
    cache_entries: int = 0
    last_sync: dt.datetime | None = None
    """None if there was none."""
    spending: tuple[Spending, ...] = ()
    """Usage of embedders by day, oldest first."""
    batches: tuple[BatchUnderWay, ...] = ()
    model_spending: tuple[ModelSpending, ...] = ()
    """Usage of chat models by day, oldest first."""
    model_costs: tuple[float | None, ...] = ()
    """Cost of each of these in US dollars; None if the settings have no price for the model."""
    model_budget_tokens: int | None = None
    model_tokens_today: int = 0
    degraded: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
