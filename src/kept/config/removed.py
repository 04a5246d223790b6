"""Settings that Kept no longer has. A file that names them still opens: they are ignored, and one notice names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

REMOVED = frozenset(
    {
        "compaction.prune_tool_results",
        "context",
        "gateway.ack_reaction",
        "gateway.auto_responder.max_queued_per_conversation",
        "gateway.discord.ack_reaction",
        "gateway.discord.stream",
        "gateway.http.allowed_hosts",
        "gateway.http.max_body_bytes",
        "gateway.http.token",
        "gateway.http.user_tokens",
        "gateway.lease_seconds",
        "gateway.max_attachment_bytes",
        "gateway.mcp",
        "gateway.serve.address_burst",
        "gateway.serve.drain_s",
        "gateway.serve.ready_timeout_s",
        "gateway.serve.token_burst",
        "gateway.serve.token_grace_s",
        "gateway.shutdown_timeout_s",
        "gateway.telegram.ack_reaction",
        "gateway.telegram.poll_timeout_s",
        "gateway.telegram.stream",
        "gateway.tracing_endpoint",
        "gateway.web.allowed_hosts",
        "gateway.web.remote_images",
        "gateway.web.token",
        "heartbeat.timezone",
        "history.by_hand",
        "history.git",
        "history.max_age_days",
        "memory_search.qmd.cooldown_s",
        "memory_search.qmd.timeout_ms",
        "memory_search.query.hybrid.fusion",
        "memory_search.query.rerank.budget_ms",
        "memory_search.query.rerank.top",
        "memory_search.query.rerank.weight",
        "memory_search.store.driver",
        "memory_search.local.mirror_url",
        "memory_search.store.max_connections",
        "memory_search.store.replica",
        "memory_search.store.schema",
        "memory_search.store.url",
        "memory_search.store.url_file",
        "memory_search.store.workspace",
        "model.background",
        "review.max_waiting",
        "schedules",
        "sync",
        "tools.ask_timeout_s",
        "tools.max_result_chars",
    }
)
"""Dotted names of settings, and of groups with all that was in them. ``*`` is a name that the user chose."""
_PLACE = re.compile(r"^agents\.(defaults|list\[\d+\])\.")


def is_removed(name: str) -> bool:
    """Return whether a name as in a file, such as agents.defaults.sync.git.branch, is or was in something removed."""
    parts = _PLACE.sub("", name).split(".")
    return any(_matches(parts, removed.split(".")) for removed in REMOVED)


def removal_notices(names: list[str]) -> list[str]:
    """Return one notice about removed settings that a file or the environment has, or none."""
    if not names:
        return []
    what = "this setting; it is" if len(names) == 1 else "these settings; they are"
    return [f"{', '.join(names)}: Kept no longer has {what} ignored."]


def iter_removed(kind: Any, tree: Any, *, at: str) -> Iterator[str]:
    """Yield the name of each removed setting in a tree that was accepted."""
    from kept.config.read import group_by_name, hints, snake

    for raw_key, value in tree.items() if isinstance(tree, dict) else ():
        key = str(raw_key) if group_by_name(kind) else snake(str(raw_key))
        where = f"{at}.{key}" if at else key
        inner = group_by_name(kind) or hints(kind).get(key)
        if inner is None and is_removed(where):
            yield where
        elif is_dataclass(inner) or group_by_name(inner):
            yield from iter_removed(inner, value, at=where)


def _matches(parts: list[str], removed: list[str]) -> bool:
    return len(parts) >= len(removed) and all(name in ("*", part) for part, name in zip(parts, removed, strict=False))
