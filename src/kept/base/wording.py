"""Numbers with their nouns, for people."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a number with a noun that agrees with it."""
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"


def short_list(names: Sequence[str], most: int) -> str:
    """Return names in a row, and of more than ``most`` how many others there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit that fits."""
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
