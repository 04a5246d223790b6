"""Blocks for text that is data: recalled, overheard or looked up, and possibly written by somebody hostile.

A block cannot be left from the inside, for three reasons, each of which is enough by itself: every line of it begins
with a bar, whatever a reader takes for the end of a line; its first and last line carry a marker that nobody can guess
and that is in none of the texts of the request; and what chat templates take for the end of a turn is defused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from kept.values import frozen

BAR = "|"
MARKER_CHARS = 16
_ABOUT_CHARS = 240

_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_JOINERS = "\u200c\u200d"
"""Persian, Indic scripts and emoji need them to be written as they should be."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | frozenset(map(chr, range(0xE0100, 0xE01F0)))
"""Seen by nobody, though not of a category that says so."""

_ROLES = (
    "system|assistant|user|human|ai|model|developer|tools?|function|invoke|parameter|antml|result|think|instructions?"
)
_TEMPLATE = re.compile(
    r"<(?=\|)"  # <|im_start|>, <|eot_id|>, <|end|>
    r"|(?<=\|)(?=>)"  # … and their ends
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS)\])"
    r"|<(?=<?/?SYS>)"
    r"|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|begin_of_text|end_of_text)>)"
    rf"|<(?=/?(?:{_ROLES})[\w:.-]*(?:\s[^>]{{0,200}})?/?>)"
    r"|<(?=｜)",
    re.IGNORECASE,
)
"""Where a backslash is put, so that neither a tokenizer nor a reader takes it for more than text."""


@frozen
class Fence:
    marker: str
    """Empty where no block is wanted, because what reads the text acts on nothing in it."""

    def block(self, kind: str, text: str, **about: str | None) -> str:
        """A text as data, with what is known about it. What is None is not known."""
        if not self.marker:
            return "\n".join(clean_lines(text))
        told = "".join(f", {name} {quoted(value)}" for name, value in about.items() if value is not None)
        lines = (f"{BAR} {line}".rstrip(" ") for line in clean_lines(text))
        return "\n".join((f"[data {self.marker} begins: {kind}{told}]", *lines, f"[data {self.marker} ends]"))


def make_fence(secret: bytes, purpose: str, texts: Iterable[str]) -> Fence:
    """A fence whose marker follows from a secret and stands in none of the texts.

    The same purpose has the same marker as long as nobody has written it down, so that what a provider has cached of a
    conversation stays of use.
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
    """The lines of a text as a model may see them: nothing invisible, nothing that a chat template would act on."""
    return [_TEMPLATE.sub(_escape, _visible(line)) for line in _LINE_END.split(text)]


def one_line(text: str, limit: int) -> str:
    line = " ".join(" ".join(clean_lines(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quoted(text: str) -> str:
    """A name that others have chosen, such as a path or a sender."""
    return json.dumps(one_line(text, _ABOUT_CHARS), ensure_ascii=False)


def skeleton(text: str) -> str:
    """A text as somebody sees it who overlooks how it is written: width, case, and whatever is between letters."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return re.sub(r"[^0-9a-z]+", "", text.lower())


def _escape(found: re.Match[str]) -> str:
    return f"{found[0]}\\"


def _visible(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    return "".join(map(_shown, line))


@cache
def _shown(char: str) -> str:
    category = unicodedata.category(char)
    if char == "\t" or char in _JOINERS:
        return char
    if category == "Cs":
        return "\ufffd"
    return "" if category in ("Cc", "Cf") or char in _UNSEEN else char
