"""Blocks for text that is data: recalled, overheard or looked up, and possibly hostile.

Text cannot break out of its block, for three reasons, each sufficient alone: every line begins with a bar, whatever
character a reader takes for a line end; the first and last line carry a marker that cannot be guessed and that occurs
in no text of the request; and the tokens that chat templates use to end a turn are escaped.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from kept.base.limits import clip, one_line
from kept.base.values import frozen

BAR = "|"
MARKER_CHARS = 16
_ATTRIBUTE_CHARS = 240

_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_JOINERS = "\u200c\u200d"
"""Invisible, but Persian, Indic scripts and emoji need them."""
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | frozenset(map(chr, range(0xE0100, 0xE01F0)))
"""Invisible characters whose Unicode category does not show it."""

_NO_OTHERS = dict.fromkeys(code for code in range(128) if not chr(code).isalnum())
"""Table for `str.translate` that removes what is neither letter nor digit."""

_ROLES = (
    "system|assistant|user|human|ai|model|developer|tools?|function|invoke|parameter|antml|result|think|instructions?"
)
_TEMPLATE = re.compile(
    r"<(?=\|)"  # <|im_start|>, <|eot_id|>, <|end|>
    r"|(?<=\|)(?=>)"  # … and the ends of these
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])"
    r"|<(?=<?/?SYS>)"
    r"|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|begin_of_text|end_of_text)>)"
    rf"|<(?=/?(?:{_ROLES})[\w:.-]*(?:\s[^>]{{0,200}})?/?>)"
    r"|<(?=｜)",
    re.IGNORECASE,
)
"""Positions where a backslash is inserted, so that a tokenizer reads plain text and no control token."""


@frozen
class Fence:
    """Delimiter of data in a request."""

    marker: str
    """Empty for plain text without blocks, for a reader that follows no instructions."""

    def block(self, kind: str, text: str, **attributes: str | None) -> str:
        """Return a text as a block of data, with its attributes in the first line. None means unknown."""
        if not self.marker:
            return "\n".join(clean_lines(text))
        # Names that others chose, such as a path or a sender: each as a JSON string on one line.
        known = "".join(
            f", {name} {json.dumps(clean_line(value, _ATTRIBUTE_CHARS), ensure_ascii=False)}"
            for name, value in attributes.items()
            if value is not None
        )
        lines = (f"{BAR} {line}".rstrip(" ") for line in clean_lines(text))
        return "\n".join((f"[data {self.marker} begins: {kind}{known}]", *lines, f"[data {self.marker} ends]"))


def make_fence(secret: bytes, purpose: str, texts: Iterable[str]) -> Fence:
    """Return a fence whose marker is derived from a secret and occurs in none of the texts.

    The marker of a purpose stays the same until a text contains it, so that the provider's cache of a conversation
    remains valid.
    """
    skeletons = [skeleton(text) for text in texts]
    attempt = 0
    while True:
        digest = hmac.new(secret, f"{attempt}:{purpose}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        marker = digest[:MARKER_CHARS]
        if not any(marker in text for text in skeletons):
            return Fence(marker)
        attempt += 1


def clean_lines(text: str) -> list[str]:
    """Return the lines of a text without invisible characters, and with tokens of chat templates escaped."""
    lines = []
    for line in _LINE_END.split(text):
        is_plain = line.isprintable() and (line.isascii() or _INVISIBLE.isdisjoint(line))
        visible = line if is_plain else "".join(map(_visible_char, line))
        may_be_template = "<" in visible or "[" in visible or "|>" in visible
        lines.append(_TEMPLATE.sub(r"\g<0>\\", visible) if may_be_template else visible)
    return lines


def clean_line(text: str, max_chars: int) -> str:
    """Return a text as one clean line of at most ``max_chars`` characters."""
    return clip(one_line(" ".join(clean_lines(text))), max_chars)


def skeleton(text: str) -> str:
    """Return the letters and digits of a text in lower case and normal width, to find a disguised marker."""
    if text.isascii():
        return text.lower().translate(_NO_OTHERS)
    return re.sub(r"[^0-9a-z]+", "", unicodedata.normalize("NFKC", text).lower())


@cache
def _visible_char(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\t" or char in _JOINERS:
        return char
    if category == "Cs":
        return "\ufffd"
    return "" if category in ("Cc", "Cf") or char in _INVISIBLE else char
