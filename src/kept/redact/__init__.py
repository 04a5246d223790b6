"""Take secrets out of a text before it is indexed, shown or sent away.

`formats` knows keys by their own format, `places` by where they stand, `assignments` by what they are called.
All of them give positions in the text as it came, so that a text can be cut after it was redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kept.redact.names import has_name

REDACTION_VERSION = 2
"""Raised when more is taken out, so that existing indexes are rebuilt without it."""

REDACTED = "[redacted]"

_SHORTEST_KEY = 16
_PLACES = ("://", "auth", " -", "bearer", "basic ", "net user", "pass:", "identified", ":5432:", ":*:", "cookie")
"""Without one of these, nothing in a text stands where secrets do."""
_SHORTEST_KNOWN = 4
_MARGIN = 512
"""How far behind a cut the text is looked at: a secret is recognised within this many characters."""


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
    """Where the secrets of a text stand, in order and apart from each other."""
    lower = text.lower()
    if len(lower) != len(text):  # some letters have two characters in lower case
        lower = "".join([sign.lower() if len(sign.lower()) == 1 else sign for sign in text])
    merged: list[tuple[int, int]] = []
    for start, end in sorted(_find(text, lower)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _find(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Import the tables when a text has what they look for: most queries have none of it, and are waited for."""
    # No key has a space in it, so only long words are searched for them: a fraction of the text.
    words = " ".join([word for word in text.split() if len(word) >= _SHORTEST_KEY])
    if words or "PRIVATE KEY" in text:
        from kept.redact.formats import find_keys

        yield from find_keys(text, words)
    if any(sign in lower for sign in _PLACES):
        from kept.redact.places import find_placed

        yield from find_placed(text, lower)
    if has_name(lower):
        from kept.redact.assignments import find_named

        yield from find_named(text, lower)


class Redactor:
    """Takes out secrets that are known, such as the keys of the settings, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST_KNOWN for form in _forms(secret)}
        # The longest first: a part of a secret that is itself one must not leave the rest of the whole behind.
        self._secrets = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        from kept.redact.formats import REPEATED
        from kept.redact.spans import compiled

        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return compiled(REPEATED).sub(REDACTED, redact(text))


def _forms(secret: str) -> Iterator[str]:
    """A secret as it is, and as it stands in an address or in JSON."""
    yield secret
    if not secret.isalnum():
        from json import dumps
        from urllib.parse import quote

        yield quote(secret, safe="")
        yield dumps(secret)[1:-1]


__all__ = ["REDACTED", "REDACTION_VERSION", "Redactor", "find_secrets", "redact"]
