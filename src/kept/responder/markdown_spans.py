"""Inline Markdown as spans of styled text, which can be cut anywhere and written as Markdown again. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from kept.values import frozen

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Style = Literal["bold", "italic", "strike", "code"]

_STYLES: dict[str, Style] = {"strong": "bold", "em": "italic", "s": "strike"}
_MARKS: dict[Style, str] = {"bold": "**", "italic": "*", "strike": "~~"}
_SPECIAL = re.compile(r"[\\`*_\[\]~<&]")
_PIECES = re.compile(r"\S+\s*|\s+")


@frozen
class StyledText:
    """Text of one style."""

    text: str
    styles: tuple[Style, ...] = ()
    href: str | None = None


@cache
def parser() -> MarkdownIt:
    """Return the parser for replies: CommonMark with tables and strikethrough, and HTML as text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def read_spans(text: str) -> list[StyledText]:
    """Return the spans of a paragraph."""
    (inline,) = parser().parseInline(text)
    return list(iter_spans(inline.children or ()))


def iter_spans(tokens: Sequence[Token]) -> Iterator[StyledText]:
    """Yield the spans of inline tokens. An image is a link to it."""
    styles: list[Style] = []
    href: str | None = None
    for token in tokens:
        kind, _, part = token.type.rpartition("_")
        if part == "open" and kind in _STYLES:
            styles.append(_STYLES[kind])
        elif part == "close" and kind in _STYLES:
            styles.remove(_STYLES[kind])
        elif kind == "link":
            href = str(token.attrs["href"]) if part == "open" else None
        elif token.type == "code_inline":
            yield StyledText(token.content, ("code",), href)
        elif token.type in ("softbreak", "hardbreak"):
            yield StyledText("\n", tuple(dict.fromkeys(styles)), href)
        elif token.type == "image":
            yield StyledText(token.content or "picture", tuple(dict.fromkeys(styles)), str(token.attrs["src"]))
        elif token.content:
            yield StyledText(token.content, tuple(dict.fromkeys(styles)), href)


def plain_text(text: str) -> str:
    """Return the text of a paragraph as a reader sees it."""
    return "".join(span.text for span in read_spans(text))


def to_markdown(spans: Sequence[StyledText]) -> str:
    """Write spans as Markdown."""
    return "".join(map(_to_markdown, _merge(spans)))


def _merge(spans: Sequence[StyledText]) -> list[StyledText]:
    """Join neighbours of one style: `**a****b**` would not be read as bold."""
    merged: list[StyledText] = []
    for span in spans:
        last = merged[-1] if merged else None
        if last is not None and (last.styles, last.href) == (span.styles, span.href):
            merged[-1] = replace(last, text=last.text + span.text)
        else:
            merged.append(span)
    return merged


def _to_markdown(span: StyledText) -> str:
    if "code" in span.styles:
        ticks = "`" * (max((len(run) for run in re.findall("`+", span.text)), default=0) + 1)
        pad = " " if span.text[:1] == "`" or span.text[-1:] == "`" else ""
        inner = f"{ticks}{pad}{span.text}{pad}{ticks}"
        return f"[{inner}](<{span.href}>)" if span.href else inner
    # Marks must touch the words that they style, so blank space goes outside.
    core = span.text.strip()
    if not core:
        return span.text
    before, _, after = span.text.partition(core)
    core = _SPECIAL.sub(r"\\\g<0>", core)
    for style in span.styles:
        core = f"{_MARKS[style]}{core}{_MARKS[style]}"
    if span.href:
        core = f"[{core}](<{span.href}>)"
    return f"{before}{core}{after}"


def cut_markdown(text: str, limit: int, measure: Callable[[str], int]) -> list[str]:
    """Cut a paragraph into parts of Markdown that fit, between words. A style that is cut goes on in the next part."""
    parts: list[str] = []
    current: list[StyledText] = []
    for piece in _iter_pieces(read_spans(text), limit, measure):
        if current and measure(to_markdown([*current, piece]).strip()) > limit:
            parts.append(to_markdown(current).strip())
            current = []
        current.append(piece)
    return [part for part in [*parts, to_markdown(current).strip()] if part]


def _iter_pieces(spans: Sequence[StyledText], limit: int, measure: Callable[[str], int]) -> Iterator[StyledText]:
    """Yield words, each as a span. Halve a word until it fits."""
    for span in spans:
        pending = [replace(span, text=word) for word in reversed(_PIECES.findall(span.text))]
        while pending:
            piece = pending.pop()
            if len(piece.text) > 1 and measure(to_markdown([piece])) > limit:
                middle = len(piece.text) // 2
                pending += [replace(piece, text=piece.text[middle:]), replace(piece, text=piece.text[:middle])]
            else:
                yield piece
