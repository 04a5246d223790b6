"""Records as JSON, as `--json` prints them."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from kept.base.records import CitedLines, Hit, Passage, SearchResult, Written
from kept.base.redact import redact

if TYPE_CHECKING:
    from kept.base.listings import BrokenLinks, Listing, NoteLink, NoteLinks
    from kept.base.reports import Status
    from kept.notes.history.note_history import NoteChange
    from kept.notes.history.undo import UndoResult
    from kept.notes.review_queue import ReviewItem, ReviewPreview, ReviewResult


_NOT_IN_EVERY_HIT = frozenset(
    "heading parts sessionKey channel title listed project alsoIn newerThan otherWords further validity".split()
)
"""Fields that JSON has for conversations only, in a list only, when explaining only, if not empty, or at the end. It
never has the other words: the parts of the score name them."""

_OF_THE_NOTE = ("path", "source", "project")
"""Fields that a further passage shares with its hit."""


def result_json(result: SearchResult, *, explain: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "answered": result.answered,
        "results": [hit_json(hit, explain=explain) for hit in result.hits],
        "degraded": list(result.degraded),
        "provider": result.provider,
        "model": result.model,
        "tookMs": round(result.took_ms, 3),
    }
    if result.period:
        shape["period"] = to_json(result.period)
    if explain:
        shape["dropped"] = to_json(result.dropped)
    return shape


def hit_json(hit: Hit, *, explain: bool = False) -> dict[str, Any]:
    """Return the fields of a hit by name."""
    shape = {name: value for name, value in to_json(hit).items() if name not in _NOT_IN_EVERY_HIT}
    shape["heading"] = hit.heading or None
    shape["project"] = hit.project
    if hit.source == "sessions":
        shape |= {"sessionKey": redact(hit.session_key or "") or None, "channel": hit.channel, "title": hit.title}
    if hit.listed:
        shape["listed"] = True
    if hit.validity:
        shape["validity"] = to_json(hit.validity)
    for name, occurrences in (("alsoIn", hit.also_in), ("newerThan", hit.newer_than)):
        if occurrences:
            shape[name] = to_json(occurrences)
    if hit.further:
        passages = (hit_json(passage, explain=explain).items() for passage in hit.further)
        shape["further"] = [{name: value for name, value in fields if name not in _OF_THE_NOTE} for fields in passages]
    if explain:
        shape["parts"] = to_json(hit.parts)
    return shape


def links_json(links: NoteLinks | BrokenLinks) -> dict[str, Any]:
    """Return the links of a note, or the broken ones of all notes."""
    shape: dict[str, Any] = to_json(links)
    for name in ("outgoing", "incoming", "links"):
        if name in shape:
            shape[name] = [link_json(link) for link in getattr(links, name)]
    return shape


def link_json(link: NoteLink) -> dict[str, Any]:
    shape: dict[str, Any] = to_json(link)
    names = {"heading": link.heading or None, "label": link.label or None, "embed": shape.pop("isEmbed")}
    return {**shape, **names, "citation": link.citation, "broken": link.is_broken}


def listing_json(listing: Listing) -> dict[str, Any]:
    files = [to_json(file) | {"sessionKey": redact(file.session_key or "") or None} for file in listing]
    return {"files": files, "total": listing.total, "degraded": list(listing.degraded)}


def passage_json(passage: Passage) -> dict[str, Any]:
    shape: dict[str, Any] = to_json(passage)
    return {"from": shape.pop("start"), **shape}


def written_json(written: Written) -> dict[str, Any]:
    near = [{**to_json(fact), "reference": fact.reference} for fact in written.near]
    return {**to_json(written), "near": near}


def status_json(status: Status) -> dict[str, Any]:
    shape: dict[str, Any] = to_json(status)
    days, costs = shape.pop("modelSpending"), shape.pop("modelCosts")
    counts: dict[str, dict[str, int]] = shape.pop("sourceCounts")
    return shape | {
        "sources": [{"source": name, **count} for name, count in counts.items()],
        "workspaceDir": status.workspace,
        "dbPath": shape.pop("indexPath"),
        "cache": {"entries": shape.pop("cacheEntries"), "maxEntries": shape.pop("cacheMaxEntries")},
        "ledger": shape.pop("spending"),
        "models": {
            "ledger": [{**day, "costUsd": cost} for day, cost in zip(days, costs, strict=True)],
            "tokensToday": shape.pop("modelTokensToday"),
            "budgetTokens": shape.pop("modelBudgetTokens"),
        },
    }


def to_json(value: Any) -> Any:
    """Return a record as a dict: its fields in camelCase, with its citation. Floats have six digits, times are in ISO
    8601."""
    if is_dataclass(value):
        shape = {}
        for spec in fields(value):
            first, *rest = spec.name.split("_")
            shape[first + "".join(map(str.capitalize, rest))] = to_json(getattr(value, spec.name))
        return {**shape, "citation": value.citation} if isinstance(value, CitedLines) else shape
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="seconds")
    return round(value, 6) if isinstance(value, float) else value


# changes of notes, and those that wait for review


def change_json(change: NoteChange, *, diff: str | None = None) -> dict[str, Any]:
    shape: dict[str, Any] = to_json(change)
    shape["undone"] = shape.pop("isUndone")
    return shape if diff is None else {**shape, "diff": diff}


def undo_json(result: UndoResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "undone": [change_json(change) for change in result.changes],
        "paths": [step.path for step in result.steps],
        "changes": [change_json(change) for change in result.recorded],
        "dryRun": dry_run,
        "degraded": list(result.degraded),
    }


def review_item_json(item: ReviewItem, preview: ReviewPreview | None = None) -> dict[str, Any]:
    """Return an item. With ``preview``, the diff and whether the item is in conflict with its note."""
    addition = item.addition
    shape: dict[str, Any] = {
        "id": item.id,
        "time": item.time,
        "path": item.path,
        "by": to_json(item.by),
        "why": item.why,
        "text": addition.text,
        "replaces": addition.replaces,
    }
    if preview is None:
        return shape
    return {**shape, "diff": preview.diff, "notice": preview.notice, "conflict": preview.is_conflict}


def review_result_json(result: ReviewResult) -> dict[str, Any]:
    return {
        "id": result.item.id,
        "action": result.action,
        "path": result.item.path,
        "changes": [change_json(change) for change in result.changes],
        "degraded": list(result.degraded),
    }
