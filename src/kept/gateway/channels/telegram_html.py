"""Replies for Telegram: Markdown as the HTML that Telegram renders. Pure.

Telegram knows bold, italic, strikethrough, code, links and quotations. Headings become bold, lists get bullets, and
tables stand in a block of code. Everything else is text, so nothing that a model writes can be taken for a tag.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.tree import SyntaxTreeNode

_TAGS = {"strong": "<b>", "em": "<i>", "s": "<s>"}
_LINKS = ("http://", "https://", "tg://", "mailto:")
_PLAIN = ("root", "paragraph", "inline", "text", "softbreak")
_EMPTY = re.compile(r"<(\w+)[^>]*></\1>")


def render_reply(markdown: str) -> str | None:
    """Return a reply as HTML, or None if it has no formatting."""
    from markdown_it.tree import SyntaxTreeNode

    root = SyntaxTreeNode(_parser().parse(markdown))
    if all(node.type in _PLAIN for node in root.walk()):
        return None
    rendered = "\n\n".join(_iter_blocks(root.children, markdown.splitlines()))
    return rendered if visible_text(rendered).strip() else None


def visible_text(rendered: str) -> str:
    """Return what a reader sees. Its length is the one that Telegram limits."""
    return html.unescape(re.sub(r"<[^>]*>", "", rendered))


@cache
def _parser() -> MarkdownIt:
    """Return the parser for replies: CommonMark with tables and strikethrough, and HTML as text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _iter_blocks(nodes: Sequence[SyntaxTreeNode], lines: Sequence[str], *, in_quote: bool = False) -> Iterator[str]:
    """Yield blocks as HTML. ``lines`` are those of the whole reply."""
    for node in nodes:
        match node.type:
            case "paragraph" | "heading":
                tokens = [token for child in node.children for part in child.children for token in part.to_tokens()]
                yield _inline(tokens, ["<b>"] if node.type == "heading" else [])
            case "fence" | "code_block":
                yield _code(node.content.rstrip("\n"), language=(node.info or "").split(" ")[0])
            case "bullet_list" | "ordered_list":
                yield _list(node, lines, in_quote=in_quote)
            case "blockquote":
                quoted = "\n\n".join(_iter_blocks(node.children, lines, in_quote=True))
                # Telegram does not take a quotation in another one.
                yield quoted if in_quote else f"<blockquote>{quoted}</blockquote>"
            case "table":
                first, end = node.map or (0, 0)
                yield _code("\n".join(lines[first:end]))
            case "hr":
                yield "———"
            case _:
                yield html.escape(node.content, quote=False)


def _inline(tokens: Sequence[Token], tags: list[str]) -> str:
    """Return inline tokens as HTML, within tags that are open around them."""
    parts = [*tags]
    for token in tokens:
        kind, _, part = token.type.rpartition("_")
        if kind in (*_TAGS, "link") and part == "open":
            tag = _TAGS.get(kind) or _link(str(token.attrs["href"]))
            tags.append("" if tag in tags else tag)
            parts.append(tags[-1])
        elif kind in (*_TAGS, "link"):
            parts.append(_closing(tags.pop()))
        elif token.type == "code_inline":  # it cannot be part of bold text or a link
            code = f"<code>{html.escape(token.content, quote=False)}</code>"
            parts += [*map(_closing, reversed(tags)), code, *tags]
        elif token.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        else:
            text = token.content or ("picture" if token.type == "image" else "")
            parts.append(html.escape(text, quote=False))
    parts += map(_closing, reversed(tags))
    return _EMPTY.sub("", "".join(parts))


def _closing(tag: str) -> str:
    return f"</{tag[1:-1].split(' ')[0]}>" if tag else ""


def _link(href: str) -> str:
    return f'<a href="{html.escape(href)}">' if href.lower().startswith(_LINKS) else ""


def _list(node: SyntaxTreeNode, lines: Sequence[str], *, in_quote: bool) -> str:
    number = int(node.attrs.get("start", 1))
    items = []
    for offset, item in enumerate(node.children):
        bullet = "• " if node.type == "bullet_list" else f"{number + offset}. "
        content = "\n".join(_iter_blocks(item.children, lines, in_quote=in_quote))
        indent = "" if "<pre>" in content else " " * len(bullet)  # lines of code stay as they are
        items.append(bullet + content.replace("\n", f"\n{indent}"))
    return "\n".join(items)


def _code(text: str, *, language: str = "") -> str:
    escaped = html.escape(text, quote=False)
    if language:
        escaped = f'<code class="language-{html.escape(language)}">{escaped}</code>'
    return f"<pre>{escaped}</pre>"
