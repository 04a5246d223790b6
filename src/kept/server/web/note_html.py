"""The text of a note as HTML: Markdown without HTML of its own, links to other notes, anchors by line, then cleaned.

Nothing in a note is trusted. The parser drops HTML (``html: False``), addresses are checked twice (by the parser and by
nh3), images come from the workspace, and those of other servers are links.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kept.base.values import frozen
from kept.index.chunking.properties import NOTE_ENDINGS
from kept.server.web.page_templates import citation_url, place_url

_WIKI = re.compile(r"(!?)\[\[([^\[\]\n|#]{0,500})(#[^\[\]\n|]{0,300})?(?:\|([^\[\]\n]{0,300}))?\]\]")
_TAG = re.compile(r"(?<![^\s(,;])#([^\s#!-,./:-@\[-^`{-~\u2000-\u206f]*[^\W\d][\w/-]{0,100})")
_TASK = re.compile(r"\[([ xX])\] ")
_LISTED_TASK = re.compile(r"^(\s*)[-*+] \[([ xX])\] ")
_LINK = re.compile(r"!?\[\[(?:[^][|]*\|)?([^][|]+)\]\]|!?\[([^][]+)\]\([^()\s]*\)")
_IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg", ".bmp", ".ico")
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "img", "input", "li"),
    *("ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {
    "*": {"class", "id"},
    "a": {"href", "title"},
    "img": {"src", "alt", "title", "loading"},
    "input": {"type", "checked", "disabled", "aria-label"},
    "ol": {"start"},
    "table": {"tabindex"},
}
_SCHEMES = {"http", "https", "mailto"}


@frozen
class NoteSetting:
    """Meaning of a note's links: the note that they are in, and the notes that its links resolve to."""

    path: str
    resolved: Mapping[str, str]
    """Paths of notes by the target of a link, as it is written."""
    first_line: int = 1
    """Line of the note that the text begins with."""
    cited: tuple[int, int] | None = None
    """First and last line to mark."""
    has_anchors: bool = True
    """False for a text whose lines are not those of a note."""


def plain_line(line: str) -> str:
    """Return a line of a note as text, with the words of its links and a box for a task."""
    task = _LISTED_TASK.sub(lambda box: f"{box[1]}{'☐' if box[2] == ' ' else '☑'} ", line)
    return _LINK.sub(lambda link: link[1] or link[2], task).replace("**", "")


def render_note(text: str, setting: NoteSetting) -> str:
    """Return Markdown as HTML that may be put into a page as it is."""
    tokens = _parser().parse(text)
    writer = _TokenWriter(setting)
    for token in tokens:
        if token.type == "inline":
            token.children = writer.rewrite(token.children or [])
    _mark_tasks(tokens)
    for table in (token for token in tokens if token.type == "table_open"):
        table.attrSet("tabindex", "0")  # a wide table can be scrolled by keys
    if setting.has_anchors:
        _anchor(tokens, setting)
    return clean(_parser().renderer.render(tokens, _parser().options, {}))


def clean(html: str) -> str:
    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="nofollow noopener noreferrer",
        clean_content_tags={"script", "style"},
    )


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


# links and images


@frozen
class _TokenWriter:
    """Rewrites the inline tokens of a note: links, images, [[links]] and #tags."""

    setting: NoteSetting

    def rewrite(self, tokens: Sequence[Token]) -> list[Token]:
        rewritten: list[Token] = []
        depth = 0
        for token in tokens:
            if token.type == "link_open":
                depth += 1
                token.attrs["href"] = self._address(str(token.attrs.get("href", "")))
                rewritten.append(token)
            elif token.type == "link_close":
                depth -= 1
                rewritten.append(token)
            elif token.type == "image":
                rewritten += self._image(str(token.attrs.get("src", "")), token.content)
            elif token.type == "text" and not depth:
                rewritten += self._text(token.content)
            else:
                rewritten.append(token)
        return rewritten

    def _address(self, href: str) -> str:
        """Return the address of a Markdown link: another page of ours for a note or a file, else as it is."""
        if href.startswith("#") or _is_remote(href):
            return href
        target, _, _ = unquote(href).partition("#")
        return self._local(target) or href

    def _local(self, target: str) -> str | None:
        """Return the address of a note or a file that a target means, or None."""
        stem = target
        for ending in NOTE_ENDINGS:
            stem = stem.removesuffix(ending)
        note_path = self.setting.resolved.get(target) or self.setting.resolved.get(stem)
        if note_path:
            return citation_url(note_path)
        if "." not in target.rpartition("/")[2]:
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.setting.path), target.lstrip("/")))
        if path.startswith(".."):
            return None
        return place_url("note" if path.endswith(NOTE_ENDINGS) else "file", path)

    def _image(self, src: str, alt: str) -> list[Token]:
        if not _is_remote(src):
            return [_image_token(self._local(unquote(src)) or "", alt)]
        host = urlsplit(src).hostname or "another server"
        return _link_tokens(src, f"{alt or 'Image'} (image on {host}, not loaded)", "remote")

    def _text(self, text: str) -> list[Token]:
        """Return text with its [[links]] and #tags as links."""
        tokens: list[Token] = []
        done = 0
        for match in _WIKI.finditer(text):
            tokens += _tag_tokens(text[done : match.start()])
            tokens += self._wiki(match)
            done = match.end()
        return [*tokens, *_tag_tokens(text[done:])]

    def _wiki(self, match: re.Match[str]) -> list[Token]:
        target, heading, label = match[2].strip(), (match[3] or "").strip(), (match[4] or "").strip()
        shown = label or " › ".join(part for part in (target, heading.lstrip("#")) if part)
        if not target:
            return _text_tokens(shown)
        address = self._local(target)
        if match[1] and target.lower().endswith(_IMAGE_ENDINGS) and address:
            return [_image_token(address, label or target)]
        if address is None:
            return _link_tokens(f"/?q={quote(target)}", shown, "broken")
        return _link_tokens(address, shown, "wiki")


def _is_remote(address: str) -> bool:
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", address))


def _text_tokens(text: str) -> list[Token]:
    return [Token("text", "", 0, content=text)] if text else []


def _tag_tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    done = 0
    for match in _TAG.finditer(text):
        tokens += _text_tokens(text[done : match.start()])
        tokens += _link_tokens(f"/notes?tag={quote(match[1])}", match[0], "tag")
        done = match.end()
    return [*tokens, *_text_tokens(text[done:])]


def _link_tokens(href: str, text: str, kind: str) -> list[Token]:
    opening = Token("link_open", "a", 1, attrs={"href": href, "class": kind})
    return [opening, *_text_tokens(text), Token("link_close", "a", -1)]


def _image_token(src: str, alt: str) -> Token:
    attrs: dict[str, Any] = {"src": src, "alt": "", "loading": "lazy"}
    return Token("image", "img", 0, attrs=attrs, content=alt, children=_text_tokens(alt))


def _mark_tasks(tokens: Sequence[Token]) -> None:
    """Show "[ ]" and "[x]" at the beginning of a list item as a box."""
    for item, paragraph, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if (item.type, paragraph.type, token.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        children = token.children or []
        first = children[0] if children and children[0].type == "text" else None
        if first and (match := _TASK.match(first.content)):
            first.content = first.content[match.end() :]
            attrs: dict[str, Any] = {"type": "checkbox", "disabled": "", "aria-label": "task"}
            if match[1] != " ":
                attrs["checked"] = ""
            children.insert(0, Token("task", "input", 0, attrs=attrs))


# lines


def _anchor(tokens: Sequence[Token], setting: NoteSetting) -> None:
    """Give every block the id of its first line, and the class "cited" to those that a citation means."""
    used: set[int] = set()
    first, last = setting.cited or (0, -1)
    leaves = [token for token in tokens if token.map and token.nesting >= 0 and token.type != "inline"]
    for token in leaves:
        assert token.map is not None
        start, end = (line + setting.first_line for line in token.map)
        if start <= first < end and _is_leaf(token) and first not in used:
            start = first
        if start not in used:
            used.add(start)
            token.attrSet("id", f"L{start}")
        if _is_leaf(token) and token.map[0] + setting.first_line <= last and end > first:
            token.attrJoin("class", "cited")


def _is_leaf(token: Token) -> bool:
    return token.type in ("paragraph_open", "heading_open", "fence", "code_block", "tr_open", "list_item_open")
