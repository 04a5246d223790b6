"""Words of a service, made fit to be shown."""

from __future__ import annotations

_LONGEST_DETAIL = 200


def one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def shorten(line: str) -> str:
    return line if len(line) <= _LONGEST_DETAIL else line[:_LONGEST_DETAIL].rstrip() + "…"
