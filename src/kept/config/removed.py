"""Names of settings that Kept does not have: those of earlier versions, and those of OpenClaw's documents.

A file that has one still opens, and a notice says what becomes of it.
"""

from __future__ import annotations

import re
from typing import Any

_GONE = "Kept no longer has this setting; it is ignored."
_OPEN = f"{_GONE} Until 'kept token create' makes one, Kept lets in every program of this machine."
_USELESS = "{}; the setting has no effect."
_NAMES = """
    compaction.prune_tool_results context gateway.ack_reaction gateway.auto_responder.max_queued_per_conversation
    gateway.discord.ack_reaction gateway.discord.stream gateway.http.allowed_hosts gateway.http.max_body_bytes
    gateway.lease_seconds gateway.max_attachment_bytes gateway.mcp gateway.serve.address_burst gateway.serve.drain_s
    gateway.serve.ready_timeout_s gateway.serve.token_burst gateway.serve.token_grace_s gateway.shutdown_timeout_s
    gateway.stream gateway.telegram.ack_reaction gateway.telegram.poll_timeout_s gateway.telegram.stream
    gateway.tracing_endpoint gateway.web.allowed_hosts gateway.web.remote_images heartbeat.timezone history.by_hand
    history.git history.max_age_days history.max_bytes memory_search.local.mirror_url memory_search.qmd.cooldown_s
    memory_search.qmd.timeout_ms memory_search.query.hybrid.fusion memory_search.query.hybrid.match
    memory_search.query.rerank.budget_ms memory_search.query.rerank.top memory_search.query.rerank.weight
    memory_search.store.driver memory_search.store.max_connections memory_search.store.replica
    memory_search.store.schema memory_search.store.url memory_search.store.url_file memory_search.store.workspace
    model.background review.max_waiting schedules sync tools.ask_timeout_s tools.max_result_chars
"""
NOTICES = {
    **dict.fromkeys(_NAMES.split(), _GONE),
    **dict.fromkeys(("gateway.http.token", "gateway.http.user_tokens", "gateway.web.token"), _OPEN),
    "gateway.auto_responder.memory_fts_enabled": _USELESS.format("Kept always searches by word"),
    "memory_search.experimental": "sessionMemory: false is read as memory_search.sources: [memory].",
    "memory_search.local.model_cache_dir": _USELESS.format("'kept models' keeps models below Kept's home"),
    "memory_search.query.top_k": "read as memory_search.query.max_results.",
    "memory_search.store.vector.extension_path": _USELESS.format("Kept needs no SQLite extension"),
}
"""What becomes of a setting, or of a group with all that was in it, by its dotted name."""
_PLACE = re.compile(r"^agents\.(defaults|list\[\d+\])\.")


def find_notice(name: str) -> str | None:
    """Return what becomes of a name as in a file, such as agents.defaults.sync.git.branch, or None if it is unknown."""
    parts = _PLACE.sub("", name).split(".")
    beginnings = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return next((NOTICES[beginning] for beginning in beginnings if beginning in NOTICES), None)


def translate(name: str, value: Any) -> dict[str, Any]:
    """Return the settings beside an old name that mean the same."""
    if name == "top_k":
        return {"max_results": value}
    # Conversations were an experiment of OpenClaw.
    is_off = isinstance(value, dict) and value.get("sessionMemory", value.get("session_memory")) is False
    return {"sources": ["memory"]} if name == "experimental" and is_off else {}
