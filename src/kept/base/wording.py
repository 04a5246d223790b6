"""Numbers with their nouns, for people."""

from __future__ import annotations


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Return a number with a noun that agrees with it."""
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"


def size_text(size: int) -> str:
    """Return a number of bytes in the largest unit that fits."""
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"
