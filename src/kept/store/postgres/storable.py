"""Texts for columns of PostgreSQL's type text, which cannot hold NUL."""

from __future__ import annotations


def storable(text: str) -> str:
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def storable_or_none(text: str | None) -> str | None:
    return None if text is None else storable(text)
