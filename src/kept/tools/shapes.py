"""Records as JSON shows them. The command line and the tools give out the same shapes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from kept.records import Hit, Listing, Passage, SearchResult, Status, Written
from kept.redact import redact


def result_json(result: SearchResult, *, explain: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "results": [hit_json(hit, explain=explain) for hit in result.hits],
        "degraded": list(result.degraded),
        "provider": result.provider,
        "model": result.model,
        "tookMs": round(result.took_ms, 3),
    }
    if result.period:
        shape["period"] = as_shape(result.period)
    if explain:
        shape["dropped"] = [
            {"citation": one.citation, "score": round(one.score, 6), "reason": one.reason} for one in result.dropped
        ]
    return shape


def hit_json(hit: Hit, *, explain: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "path": hit.path,
        "startLine": hit.start_line,
        "endLine": hit.end_line,
        "score": round(hit.score, 6),
        "vectorScore": None if hit.vector_score is None else round(hit.vector_score, 6),
        "textScore": None if hit.text_score is None else round(hit.text_score, 6),
        "snippet": hit.snippet,
        "source": hit.source,
        "timestamp": hit.timestamp,
        "citation": hit.citation,
    }
    if hit.listed:
        shape["listed"] = True
    if hit.source == "sessions":
        shape |= {"sessionKey": redact(hit.session_key or "") or None, "channel": hit.channel}
    if explain:
        shape["parts"] = [{"name": p.name, "value": round(p.value, 6), "detail": p.detail} for p in hit.parts]
    return shape


def listing_json(listing: Listing) -> dict[str, Any]:
    files = [as_shape(file) | {"sessionKey": redact(file.session_key or "") or None} for file in listing]
    return {"files": files, "total": listing.total, "degraded": list(listing.degraded)}


def passage_json(passage: Passage) -> dict[str, Any]:
    return {
        "path": passage.path,
        "from": passage.start,
        "lines": passage.lines,
        "text": passage.text,
        "truncated": passage.truncated,
        "nextFrom": passage.next_from,
    }


def written_json(written: Written) -> dict[str, Any]:
    return {
        "path": written.path,
        "startLine": written.start_line,
        "endLine": written.end_line,
        "citation": written.citation,
    }


def status_json(status: Status) -> dict[str, Any]:
    return {
        "backend": status.backend,
        "provider": status.provider,
        "requestedProvider": status.requested_provider,
        "model": status.model,
        "dims": status.dims,
        "files": status.files,
        "chunks": status.chunks,
        "sources": [{"source": name, **counts} for name, counts in status.source_counts.items()],
        "dirty": status.dirty,
        "changedFiles": status.changed_files,
        "pending": status.pending,
        "workspaceDir": status.workspace,
        "dbPath": status.index_path,
        "agent": status.agent,
        "indexBytes": status.index_bytes,
        "cache": {"entries": status.cache_entries, "maxEntries": status.cache_max_entries},
        "lastSync": status.last_sync,
        "ledger": as_shape(status.spending),
        "batches": as_shape(status.batches),
        "heals": as_shape(status.heals),
        "models": {
            "ledger": as_shape(status.model_spending),
            "tokensToday": status.model_tokens_today,
            "budgetTokens": status.model_budget_tokens,
        },
        "degraded": list(status.degraded),
        "problems": as_shape(status.problems),
    }


def as_shape(value: Any) -> Any:
    """A record as JSON shows it: its fields by name, in camelCase, and times to the microsecond."""
    if is_dataclass(value):
        return {_camel(spec.name): as_shape(getattr(value, spec.name)) for spec in fields(value)}
    if isinstance(value, list | tuple):
        return [as_shape(one) for one in value]
    return round(value, 6) if isinstance(value, float) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
