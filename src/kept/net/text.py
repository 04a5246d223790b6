"""Words of a service, made fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LONGEST_DETAIL = 200


class Redactor:
    """Takes secrets out of what is about to be said: those it was told of, and whatever looks like a key."""

    _KEYS = re.compile(r"\b(?:sk|pa|pk|rk)-[\w*-]{6,}|\bAIza[\w-]{10,}|(?i:bearer|basic) [\w.~+/=-]{6,}")

    def __init__(self, secrets: Iterable[str]) -> None:
        # The longest first: a part of a secret that is itself one must not leave the rest of the whole behind.
        self._secrets = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "(secret)")
        return self._KEYS.sub("(secret)", text)


def one_line(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def shorten(line: str) -> str:
    return line if len(line) <= _LONGEST_DETAIL else line[:_LONGEST_DETAIL].rstrip() + "…"
