"""Names of settings that Kept does not have: earlier ones, and those of OpenClaw's documents. A file that has one
opens, and a notice says that it is ignored."""

from __future__ import annotations

import re

_NAMES = """
    compaction.prune_tool_results context gateway.ack_reaction gateway.auto_responder.max_queued_per_conversation
    gateway.auto_responder.memory_fts_enabled gateway.discord.ack_reaction gateway.discord.stream
    gateway.http.allowed_hosts gateway.http.max_body_bytes gateway.http.token gateway.http.user_tokens
    gateway.lease_seconds gateway.max_attachment_bytes gateway.mcp gateway.serve.address_burst gateway.serve.drain_s
    gateway.serve.ready_timeout_s gateway.serve.token_burst gateway.serve.token_grace_s gateway.shutdown_timeout_s
    gateway.stream gateway.telegram.ack_reaction gateway.telegram.poll_timeout_s gateway.telegram.stream
    gateway.tracing_endpoint gateway.web.allowed_hosts gateway.web.remote_images gateway.web.token heartbeat.timezone
    history.by_hand history.git history.max_age_days history.max_bytes memory_search.experimental
    memory_search.local.mirror_url memory_search.local.model_cache_dir memory_search.qmd.cooldown_s
    memory_search.qmd.timeout_ms memory_search.query.hybrid.fusion memory_search.query.hybrid.match
    memory_search.query.rerank.budget_ms memory_search.query.rerank.top memory_search.query.rerank.weight
    memory_search.query.top_k memory_search.store.driver memory_search.store.max_connections memory_search.store.replica
    memory_search.store.schema memory_search.store.url memory_search.store.url_file
    memory_search.store.vector.extension_path memory_search.store.workspace model.background review.max_waiting
    schedules sync tools.ask_timeout_s tools.max_result_chars
"""
REMOVED = frozenset(_NAMES.split())
"""Settings, and groups with all that was in them, by their dotted names."""
IGNORED = "Kept does not have this setting; it is ignored."
_PLACE = re.compile(r"^agents\.(defaults|list\[\d+\])\.")


def is_removed(name: str) -> bool:
    """Return whether a name as in a file, such as agents.defaults.sync.git.branch, is one of these."""
    parts = _PLACE.sub("", name).split(".")
    return any(".".join(parts[:end]) in REMOVED for end in range(1, len(parts) + 1))
