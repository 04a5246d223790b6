"""Replies for Telegram: Markdown as the HTML that Telegram renders. Pure.

Telegram knows bold, italic, strikethrough, code, links and quotations. Headings become bold, lists get bullets, and
tables are aligned in a block of code. Everything else is text, so nothing that a model writes can be taken for a tag.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from kept.values import frozen

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

_TAGS = {"strong": "b", "em": "i", "s": "s", "code": "code"}
_LINKS = ("http://", "https://", "tg://", "mailto:")
_PLAIN = ("root", "paragraph", "inline", "text", "softbreak")
_RULE = "———"


@frozen
class StyledText:
    """Text of one style."""

    text: str
    styles: tuple[str, ...] = ()
    href: str | None = None


@frozen
class RenderedReply:
    html: str
    text: str
    """What a reader sees. Its length is the one that Telegram limits."""


def render_reply(markdown: str) -> RenderedReply | None:
    """Return a reply as HTML, or None if it has no formatting."""
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(_parser().parse(markdown))
    if all(node.type in _PLAIN for node in root.walk()):
        return None
    rendered = _join(list(_iter_blocks(root.children)), "\n\n")
    return rendered if rendered.text.strip() else None


@cache
def _parser() -> MarkdownIt:
    """Return the parser for replies: CommonMark with tables and strikethrough, and HTML as text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _iter_blocks(nodes: Sequence[SyntaxTreeNode], *, in_quote: bool = False) -> Iterator[RenderedReply]:
    for node in nodes:
        match node.type:
            case "paragraph" | "heading":
                yield _inline(node, bold=node.type == "heading")
            case "fence" | "code_block":
                yield _code(node.content.rstrip("\n"), language=(node.info or "").split(" ")[0])
            case "bullet_list" | "ordered_list":
                yield _list(node, in_quote=in_quote)
            case "blockquote":
                quoted = _join(list(_iter_blocks(node.children, in_quote=True)), "\n\n")
                # Telegram does not take a quotation in another one.
                yield quoted if in_quote else replace(quoted, html=f"<blockquote>{quoted.html}</blockquote>")
            case "table":
                yield _code(_table_text(node))
            case "hr":
                yield RenderedReply(_RULE, _RULE)
            case _:
                yield _plain(node.content)


def _inline(node: SyntaxTreeNode, *, bold: bool = False) -> RenderedReply:
    spans = [
        replace(span, styles=(*span.styles, "strong")) if bold and not {"strong", "code"} & {*span.styles} else span
        for child in node.children
        for span in _iter_spans([token for part in child.children for token in part.to_tokens()])
    ]
    return RenderedReply("".join(map(_span_html, spans)), "".join(span.text for span in spans))


def _iter_spans(tokens: Sequence[Token]) -> Iterator[StyledText]:
    """Yield the spans of inline tokens. An image is a link to it."""
    styles: list[str] = []
    href: str | None = None
    for token in tokens:
        kind, _, part = token.type.rpartition("_")
        if part == "open" and kind in _TAGS:
            styles.append(kind)
        elif part == "close" and kind in _TAGS:
            styles.remove(kind)
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


def _span_html(span: StyledText) -> str:
    text = html.escape(span.text, quote=False)
    for style in span.styles:
        text = f"<{_TAGS[style]}>{text}</{_TAGS[style]}>"
    if span.href and span.href.lower().startswith(_LINKS) and "code" not in span.styles:
        text = f'<a href="{html.escape(span.href)}">{text}</a>'
    return text


def _list(node: SyntaxTreeNode, *, in_quote: bool) -> RenderedReply:
    number = int(node.attrs.get("start", 1))
    items = []
    for offset, item in enumerate(node.children):
        bullet = "• " if node.type == "bullet_list" else f"{number + offset}. "
        content = _join(list(_iter_blocks(item.children, in_quote=in_quote)), "\n")
        items.append(_hang(content, bullet))
    return _join(items, "\n")


def _hang(content: RenderedReply, bullet: str) -> RenderedReply:
    """Put a bullet before the first line, and indent lines of nested lists. Lines of code stay as they are."""
    indent = " " * len(bullet)
    if "<pre>" in content.html:
        return RenderedReply(bullet + content.html, bullet + content.text)
    return RenderedReply(
        bullet + content.html.replace("\n", f"\n{indent}"), bullet + content.text.replace("\n", f"\n{indent}")
    )


def _code(text: str, *, language: str = "") -> RenderedReply:
    escaped = html.escape(text, quote=False)
    if language:
        escaped = f'<code class="language-{html.escape(language)}">{escaped}</code>'
    return RenderedReply(f"<pre>{escaped}</pre>", text)


def _table_text(table: SyntaxTreeNode) -> str:
    rows = [
        [_inline(cell).text.replace("\n", " ") for cell in row.children]
        for part in table.children
        for row in part.children
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join((lines[0], "  ".join("-" * width for width in widths), *lines[1:]))


def _plain(text: str) -> RenderedReply:
    return RenderedReply(html.escape(text, quote=False), text)


def _join(parts: Sequence[RenderedReply], separator: str) -> RenderedReply:
    return RenderedReply(separator.join(part.html for part in parts), separator.join(part.text for part in parts))
