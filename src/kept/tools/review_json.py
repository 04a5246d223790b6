"""Changes that wait for review as JSON, for scripts and for the web view."""

from __future__ import annotations

from typing import Any

from kept.review.review_item import ReviewItem
from kept.review.review_queue import ReviewPreview, ReviewResult
from kept.tools.change_json import author_json, change_json


def review_item_json(item: ReviewItem, preview: ReviewPreview | None = None) -> dict[str, Any]:
    """Return an item. With ``preview``, the diff and whether the item is in conflict with its note."""
    addition = item.addition
    shape: dict[str, Any] = {
        "id": item.id,
        "state": item.state,
        "time": item.time,
        "path": item.path,
        "by": author_json(item.by),
        "why": item.why,
        "text": addition.text if addition else None,
        "replaces": addition.replaces if addition else None,
        "changes": list(item.changes),
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
