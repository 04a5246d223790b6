"""The state of one agent's memory, for `kept status`: reads only."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from kept.base.clock import Clock
from kept.base.records import Problem
from kept.base.reports import BatchUnderWay, ModelSpending, Status
from kept.base.wording import plural
from kept.config import Config
from kept.config.schema import ModelPriceSettings
from kept.embedding.base import Identity
from kept.index.batches import open_batches, read_book
from kept.index.sources import find_copies
from kept.index.sync_planner import SyncPlanner
from kept.index.sync_run import META_SYNCED
from kept.models.ledger import open_embedding_ledger, open_model_ledger, tokens_of_day


def status_without_index(
    config: Config,
    clock: Clock,
    identity: Identity | None,
    *,
    workspace: str,
    index_path: str,
    warnings: tuple[str, ...],
) -> Status:
    """Return what the settings and the ledgers say. ``warnings`` are problems of the embedder."""
    settings, ledger = config.memory_search, open_model_ledger(config, clock)
    days, prices = tuple(ledger.by_day()), config.agent.model.prices
    # Also if batches were switched off since: they continue, and are paid for.
    jobs = read_book(open_batches(config)).jobs
    return Status(
        workspace=workspace,
        index_path=index_path,
        agent=config.agent_id,
        provider=identity.provider if identity else "none",
        requested_provider=settings.provider,
        model=identity.model if identity else None,
        dims=(identity.dims or None) if identity else None,
        cache_max_entries=settings.cache.max_entries,
        backend=settings.backend,
        batches=tuple(
            BatchUnderWay(job.provider, len(job.hashes), dt.datetime.fromtimestamp(job.created_s).astimezone())
            for job in jobs
        ),
        degraded=warnings,
        model_spending=days,
        model_costs=tuple(model_cost(spent, prices.get(spent.model)) for spent in days),
        model_budget_tokens=config.agent.model.daily_budget_tokens,
        model_tokens_today=tokens_of_day(days, str(ledger.clock.now().date())),
    )


def add_index_status(status: Status, planner: SyncPlanner, config: Config, clock: Clock) -> Status:
    """Add the state of the index. Raise StoreDamaged if a page of a small index is damaged."""
    index = planner.index
    index.check_if_quick()
    scan, rebuild = planner.reader.scan(), planner.why_rebuild()
    changed = planner.count_changed(scan)
    with index.reading():
        counts = index.live.counts()
        warnings = [Problem(path, reason) for path, reason in index.live.note_warnings()]
    synced = index.get_meta(META_SYNCED)
    pending = counts.chunks - counts.vectors if planner.vectors is not None else 0
    degraded = [*status.degraded, *filter(None, [planner.reader.workspace.why_read_only()])]
    if index.why_read_only:
        degraded.append(f"The index can be searched, not written: {index.why_read_only.message}")
    if rebuild:
        degraded.append(f"The index will be rebuilt: {rebuild}.")
    elif pending:
        degraded.append(f"Found by word, not yet by meaning: {plural(pending, 'chunk')}.")
    return replace(
        status,
        index_path=index.path,
        extra_paths=planner.reader.workspace.extra_paths,
        files=counts.files,
        chunks=counts.chunks,
        source_counts=counts.by_source,
        dirty=changed > 0 or rebuild is not None,
        changed_files=changed,
        pending=pending,
        index_bytes=index.size_bytes(),
        cache_entries=index.cache.count(),
        last_sync=dt.datetime.fromisoformat(synced).astimezone() if synced else None,
        spending=tuple(open_embedding_ledger(config, clock).by_day()),
        degraded=tuple(degraded),
        problems=(*scan.problems, *warnings, *find_copies(scan)),
    )


def model_cost(spent: ModelSpending, price: ModelPriceSettings | None) -> float | None:
    """Return what tokens cost in US dollars, or None if their price is not known."""
    if price is None:
        return None
    cached_price = price.input if price.cached is None else price.cached
    fresh = spent.input - spent.cached
    return (fresh * price.input + spent.cached * cached_price + spent.output * price.output) / 1_000_000
