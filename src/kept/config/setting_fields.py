"""Fields of settings: numbers with bounds, and secrets."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def bounded(default: Any, low: float, high: float) -> Any:
    """Return a field for a number that is clamped into its range, with a notice, and not refused outside it."""
    return field(default=default, metadata={"low": low, "high": high})


def secret(default: Any = None) -> Any:
    """Return a field whose value is never shown, not even when the whole configuration is printed."""
    return field(default=default, repr=False, metadata={"secret": True})
