"""Removes secrets from a text before it is indexed, shown or sent away.

`formats` recognises keys by their own format, `surroundings` by the text around them, and `assignments` by their names,
which are in `names`; `secret_values` tells a secret from a word, a number or a path. All of them report `spans` of the
original text, so that a text can be cut after redaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kept.redact.names import has_name

REDACTION_VERSION = 2
"""Incremented when more is redacted, so that existing indexes are rebuilt without it."""

REDACTED = "[redacted]"

_MIN_KEY_CHARS = 16
_SURROUNDINGS = ("://", "auth", " -", "bearer", "basic ", "net user", "pass:", "identified", ":5432:", ":*:", "cookie")
"""Without one of these in a text, no rule of `surroundings` can match."""
_MIN_KNOWN_CHARS = 4
_MARGIN = 512
"""Number of characters read beyond a cut. A secret is recognised within this many."""


def redact(text: str, *, limit: int | None = None) -> str:
    """Replace everything that looks like a secret with '[redacted]'.

    With ``limit``, only that much of the beginning is returned, cut after it was redacted: half a key would not be
    recognised as one.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit + _MARGIN]
    else:
        limit = len(text)
    parts: list[str] = []
    done = 0
    for start, end in find_secrets(text):
        if start >= limit:
            break
        parts += (text[done:start], REDACTED)
        done = end
    return "".join((*parts, text[done:limit])) if parts else text[:limit]


def find_secrets(text: str) -> list[tuple[int, int]]:
    """Return the spans of the secrets in a text, in order and without overlaps."""
    lower = text.lower()
    if len(lower) != len(text):  # some letters become two characters in lower case
        lower = "".join([char.lower() if len(char.lower()) == 1 else char for char in text])
    merged: list[tuple[int, int]] = []
    for start, end in sorted(_find(text, lower)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _find(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Yield spans, unsorted. Import a table only if the text can match it: most queries match none, and users wait."""
    # Keys have no spaces, so only long words are searched: a fraction of the text.
    words = " ".join([word for word in text.split() if len(word) >= _MIN_KEY_CHARS])
    if words or "PRIVATE KEY" in text:
        from kept.redact.formats import find_keys

        yield from find_keys(text, words)
    if any(keyword in lower for keyword in _SURROUNDINGS):
        from kept.redact.surroundings import find_by_surroundings

        yield from find_by_surroundings(text, lower)
    if has_name(lower):
        from kept.redact.assignments import find_named

        yield from find_named(text, lower)


class Redactor:
    """Redacts known secrets, such as the keys of the settings, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _MIN_KNOWN_CHARS for form in _forms(secret)}
        # Longest first: replacing a secret that is part of another would leave the rest of the other.
        self._secrets = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        from kept.redact.formats import REPEATED
        from kept.redact.spans import compiled

        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return compiled(REPEATED).sub(REDACTED, redact(text))


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret verbatim, and as encoded in a URL and in JSON."""
    yield secret
    if not secret.isalnum():
        from json import dumps
        from urllib.parse import quote

        yield quote(secret, safe="")
        yield dumps(secret)[1:-1]


__all__ = ["REDACTED", "REDACTION_VERSION", "Redactor", "find_secrets", "redact"]
