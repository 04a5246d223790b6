"""Cuts Markdown into chunks.

A note is cut at its headings, a section that is too long at its paragraphs, a paragraph at its lines, and a line that
is too long by characters. Only there, inside one section, do chunks overlap: so an edit changes the chunks of its
own section and no others. A section is also cut at the rule that separates entries. Lines are counted exactly; every
line that is not blank is in a chunk, except those rules, the lines that hold the properties of the note, and the data
of a drawing.

The block structure is parsed within a budget, and a note that exceeds it is cut by lines alone. Some texts cost the
parser far more than their length suggests: a line of nineteen nested quotes makes it read every line below it nineteen
times, and each cell of a table is three objects. The budget counts work, never time: the same text is always within it
or always beyond it, however busy the machine is.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kept.base.limits import CHARS_PER_TOKEN, weigh
from kept.base.records import ENTRY_RULE, Chunk, is_fact_list
from kept.base.values import frozen

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

    from kept.index.chunking.properties import NoteProperties, References

# Incremented when the same text is cut differently, so that existing indexes are rebuilt.
CHUNKER_VERSION = 7

HEADING_JOIN = " > "
# Longer headings are paragraphs, because a heading is repeated in every chunk below it.
MAX_HEADING_CHARS = 200
HEADING_MARKS = re.compile(r"^\s{0,3}#{1,6}\s+|(?<!\s)\s+#+\s*$")

# Longer lines are not table rows: the parser's own rule needs quadratic time and much memory to split them.
MAX_TABLE_CHARS = 20_000
# A tag with more attributes is not HTML: the pattern that recognises it would need much memory.
MAX_ATTRIBUTES = 20_000
# A longer link definition is a paragraph. The parser's own rule would take quadratic time.
MAX_DEFINITION_LINES = 32
# A heading, a rule between entries, a line that begins with a letter, or nothing. A note of no other lines, such as a
# daily note that `kept add` writes, is not parsed: that would take a third of the time to index the entry it got.
_PLAIN_LINE = rf"(?:#{{1,6}} \S.{{0,{MAX_HEADING_CHARS - 10}}}|{re.escape(ENTRY_RULE)}|[^\W\d_].*)?"
_PLAIN_LINES = 5_000
# Property of a note that is a drawing.
_DRAWING = "excalidraw-plugin:"
_LINE_RULES = ["paragraph", "reference", "blockquote", "list"]


@frozen
class ChunkSize:
    tokens: int = 400
    overlap: int = 80


@frozen
class ChunkingBudget:
    """Limits for one note. A note that exceeds any of them is cut by lines alone."""

    lines: int = 100_000
    steps: int = 300_000
    """Number of times the parser looks at a line: once for each block that the line might begin or end."""
    tokens: int = 600_000
    chunks: int = 20_000


class BudgetExceeded(Exception):
    """Raised if a text needs more work than its budget allows."""


@frozen
class Span:
    """Lines ``start`` up to but not including ``end``, counted from 0."""

    start: int
    end: int


@frozen
class Section:
    heading: str
    body_at: int
    """First line below its heading lines."""
    span: Span
    blocks: tuple[Span, ...]
    """Paragraphs, lists, tables and fences in it. Together with blank lines they fill the span."""


@frozen
class CutNote:
    chunks: list[Chunk]
    properties: NoteProperties
    references: References
    plain: bool = False
    """True if the note exceeded its budget and was cut by lines alone, regardless of headings."""


def chunk_markdown(text: str, *, name: str = "", size: ChunkSize | None = None) -> list[Chunk]:
    """Return the chunks of a note. MEMORY.md and USER.md are cut finer, into a chunk for each list item."""
    return cut_note(text, name=name, size=size).chunks


def cut_note(
    text: str, *, name: str = "", size: ChunkSize | None = None, budget: ChunkingBudget | None = None
) -> CutNote:
    """Return the chunks of a note, its properties, and the tags and links in it."""
    # Imported here: a search imports this module and cuts nothing.
    from kept.index.chunking.properties import find_references, read_properties

    lines = text.split("\n")
    properties = read_properties(lines)
    if _DRAWING in text:
        _blank_drawing(lines)
        text = "\n".join(lines)
    cutter = _NoteCutter(lines, properties, size or ChunkSize(), budget or ChunkingBudget(), is_fine=is_fact_list(name))
    plain = False
    try:
        chunks = cutter.cut_by_sections()
    except BudgetExceeded:
        chunks, plain = list(cutter.cut_plainly(cutter.body_at)), True
        cutter.code.clear()
    # A note without a body is found by its properties.
    chunks = chunks or list(cutter.cut_plainly(0))
    return CutNote(chunks, properties, find_references(text, cutter.code, tags_after=cutter.body_at), plain)


def _blank_drawing(lines: list[str]) -> None:
    """Empty the lines in which Excalidraw keeps the data of a drawing. Its words are text elsewhere in the note."""
    is_data = False
    for at, line in enumerate(lines):
        is_end = is_data and line.startswith("```")
        is_data = is_data or line.rstrip() in ("```compressed-json", "```json")
        if is_data or line.rstrip() == "%%":
            lines[at] = ""
        is_data = is_data and not is_end


def note_name(path: str) -> str:
    """Return the name of a note from its path: memory/red-door.md is "red door"."""
    name = path.rpartition("/")[2]
    return (name.rpartition(".")[0] or name).replace("-", " ").replace("_", " ")


class _NoteCutter:
    """Cuts the lines of one note. ``is_fine`` makes a chunk of each list item."""

    def __init__(
        self, lines: list[str], properties: NoteProperties, size: ChunkSize, budget: ChunkingBudget, *, is_fine: bool
    ) -> None:
        self.lines, self.budget, self.is_fine = lines, budget, is_fine
        self.limit = size.tokens * CHARS_PER_TOKEN
        # With an overlap above half a chunk, most text would be stored twice or more.
        self.carried = min(size.overlap, size.tokens // 2) * CHARS_PER_TOKEN
        self.front = properties.lines
        """Number of lines before the body."""
        self.body_at = 0 if properties.is_text else properties.lines
        """The first line that is in a chunk: the front may be text."""
        self.code: list[tuple[int, int]] = []
        """First line of each code block and the line after it, filled while the note is parsed."""

    def cut_by_sections(self) -> list[Chunk]:
        """Return the chunks of each section. Raise BudgetExceeded if the note is too complex."""
        chunks: list[Chunk] = []
        for section in self._iter_sections():
            edges = [section.span.start, section.span.end]
            if self.is_fine:  # the first block has the heading lines
                edges[1:1] = [block.start for block in section.blocks[1:]]
            for span in filter(None, map(self._trim, edges, edges[1:])):
                is_short = self._weight(span) <= self.limit
                chunks += [self._chunk(section, span)] if is_short else self._cut(section, span)
            if len(chunks) > self.budget.chunks:
                raise BudgetExceeded
        return chunks

    def cut_plainly(self, begin: int) -> Iterator[Chunk]:
        """Yield chunks of whole lines, without regard to Markdown and without overlap."""
        weight, end = 0, len(self.lines)
        whole = Section("", begin, Span(begin, end), ())
        for at in range(begin, end):
            cost = weigh(self.lines[at]) + 1
            if weight + cost > self.limit:
                yield from self._pack(whole, [Span(begin, at)])
                begin, weight = at, 0
            if cost > self.limit:
                yield from self._cut_line(whole, at)
                begin = at + 1
            else:
                weight += cost
        yield from self._pack(whole, [Span(begin, end)])

    # sections

    def _iter_sections(self) -> Iterator[Section]:
        """Yield the sections in order. A heading directly followed by a deeper one becomes part of that section."""
        outline: list[tuple[int, str]] = []
        start = body_at = self.body_at
        blocks = [Span(0, self.front)] if start < self.front else []

        end = Span(len(self.lines), len(self.lines))
        for kind, span, level in chain(self._iter_blocks(), [("end", end, 0)]):
            if kind == "block" or (kind == "rule" and not blocks):
                blocks.append(span)
                continue
            is_empty_section = kind == "heading" and body_at > start and outline[-1][0] >= level
            if blocks or is_empty_section or (kind == "end" and start < end.start):
                heading = HEADING_JOIN.join(title for _, title in outline if title)
                yield Section(heading, body_at, Span(start, span.start), tuple(blocks))
                start, blocks = span.end if kind == "rule" else span.start, []
            if kind == "heading":
                while outline and outline[-1][0] >= level:
                    outline.pop()
                outline.append((level, HEADING_MARKS.sub("", self.lines[span.start]).strip()))
            body_at = span.end

    def _iter_blocks(self) -> Iterator[tuple[str, Span, int]]:
        """Yield each heading, rule and block with its lines, and the level of a heading."""
        body = self.lines[self.front :]
        if len(self.lines) <= _PLAIN_LINES and all(map(re.compile(_PLAIN_LINE).fullmatch, body)):
            yield from self._iter_plain_blocks()
            return
        for token in _parse_blocks(body, self.budget):
            if token.map is None or token.nesting < 0:
                continue
            span = Span(token.map[0] + self.front, token.map[1] + self.front)
            if token.type in ("fence", "code_block"):
                self.code.append((span.start, span.end))
            # To Markdown, a paragraph of several lines above a rule is a heading too.
            is_title = span.end - span.start <= 2 and len(self.lines[span.start]) <= MAX_HEADING_CHARS
            is_item = self.is_fine and token.type == "list_item_open"
            is_fine_list = self.is_fine and token.type in ("bullet_list_open", "ordered_list_open")
            if token.level == 0 and token.type == "heading_open" and is_title:
                yield "heading", span, int(token.tag[1])
            elif token.level == 0 and token.type == "hr" and self.lines[span.start].strip() == ENTRY_RULE:
                yield "rule", span, 0
            elif token.level == int(is_item) and not is_fine_list:
                yield "block", span, 0

    def _iter_plain_blocks(self) -> Iterator[tuple[str, Span, int]]:
        """Yield the blocks of a note that has only plain lines, as the parser would."""
        in_paragraph = False
        for at, line in enumerate(self.lines[self.front :], self.front):
            span = Span(at, at + 1)
            if line[:1] == "#":
                yield "heading", span, len(line) - len(line.lstrip("#"))
            elif line == ENTRY_RULE:
                yield "rule", span, 0
            elif line and not in_paragraph:
                yield "block", span, 0
            in_paragraph = line[:1] not in ("", "#", "*")

    # chunks

    def _cut(self, section: Section, span: Span) -> Iterator[Chunk]:
        """Pack blocks and lines into chunks. Each chunk after the first repeats the end of the one before."""
        limit = self.limit
        units: list[Span] = []
        for block in _fill(section.blocks, span):
            if self._weight(block) <= limit:
                units.append(block)
            else:
                units.extend(Span(at, at + 1) for at in range(block.start, block.end))
        begin, weight = 0, 0
        for at, unit in enumerate(units):
            cost = self._weight(unit)
            if cost > limit:
                yield from self._pack(section, units[begin:at])
                yield from self._cut_line(section, unit.start)
                begin, weight = at + 1, 0
                continue
            if weight + cost > limit and at > begin:
                yield from self._pack(section, units[begin:at])
                begin, weight = self._carry(units, begin, at, room=limit - cost)
            weight += cost
        yield from self._pack(section, units[begin:])

    def _carry(self, units: list[Span], begin: int, at: int, *, room: int) -> tuple[int, int]:
        """Return the first unit of the next chunk, which repeats the end of the last, and the weight of the overlap."""
        first, weight = at, 0
        while first > begin + 1:
            cost = self._weight(units[first - 1])
            if weight + cost > min(self.carried, room):
                break
            first -= 1
            weight += cost
        return first, weight

    def _pack(self, section: Section, units: list[Span]) -> Iterator[Chunk]:
        if units and (span := self._trim(units[0].start, units[-1].end)):
            yield self._chunk(section, span)

    def _cut_line(self, section: Section, at: int) -> Iterator[Chunk]:
        """Yield the pieces of a line that is longer than a chunk. All of them cite that line."""
        line, limit = self.lines[at], self.limit
        seen: set[str] = set()
        start = 0
        while start < len(line):
            end = min(len(line), start + limit)
            while weigh(line[start:end]) > limit:
                end = start + max(1, (end - start) * limit // weigh(line[start:end]))
            if end < len(line):
                space = line.rfind(" ", start + (end - start) // 2, end)
                end = space + 1 if space > 0 else end
            piece = line[start:end]
            if piece.strip() and piece not in seen:
                seen.add(piece)
                yield self._chunk(section, Span(at, at + 1), text=piece)
            start = end

    def _chunk(self, section: Section, span: Span, text: str | None = None) -> Chunk:
        whole = "\n".join(self.lines[span.start : span.end]) if text is None else text
        is_body = span.start >= section.body_at
        below = whole if is_body else "\n".join(self.lines[section.body_at : span.end])
        embed_text = f"{section.heading}\n{below}".strip()
        return Chunk(span.start + 1, span.end, text=whole, heading=section.heading, embed_text=embed_text)

    def _trim(self, start: int, end: int) -> Span | None:
        """Return the span of some lines without the blank ones at its ends, or None if all are blank."""
        while start < end and not self.lines[start].strip():
            start += 1
        while end > start and not self.lines[end - 1].strip():
            end -= 1
        return Span(start, end) if start < end else None

    def _weight(self, span: Span) -> int:
        return sum(weigh(line) + 1 for line in self.lines[span.start : span.end])


def _fill(blocks: tuple[Span, ...], span: Span) -> Iterator[Span]:
    """Yield the blocks inside a span, each extended to the next, so that no line is lost."""
    first = bisect_right(blocks, span.start, key=attrgetter("start"))
    last = bisect_left(blocks, span.end, lo=first, key=attrgetter("start"))
    edges = [span.start, *(block.start for block in blocks[first:last]), span.end]
    return (Span(a, b) for a, b in pairwise(edges) if a < b)


# parsing


def _parse_blocks(lines: list[str], budget: ChunkingBudget) -> list[Token]:
    """Return the parser's tokens. Raise BudgetExceeded if the text is too complex."""
    if len(lines) > budget.lines:
        raise BudgetExceeded
    return _parser().parse("\n".join(lines), {"steps": budget.steps, "tokens": budget.tokens})


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import html_block, reference, table

    parser = MarkdownIt("commonmark").enable("table")
    # Only the block structure is needed, not emphasis and links.
    parser.core.ruler.enableOnly(["normalize", "block"])
    rules = parser.block.ruler
    rules.at("table", _with_short_lines(table), {"alt": ["paragraph", "reference"]})
    rules.at("html_block", _with_few_attributes(html_block), {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("reference", _within_lines(reference))
    rules.before("table", "budget", _spend_step, {"alt": _LINE_RULES})
    return parser


def _spend_step(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Count a step. The parser tries this rule first for every line; it matches only a table row that is too long."""
    env = state.env
    env["steps"] = left = env["steps"] - 1
    if left < 0 or len(state.tokens) > env["tokens"]:
        raise BudgetExceeded
    return state.parentType == "table" and _is_too_long(state, start)  # a table ends where a rule matches


def _is_too_long(state: StateBlock, line: int) -> bool:
    return state.eMarks[line] - state.bMarks[line] > MAX_TABLE_CHARS


def _with_short_lines(table: Any) -> Any:
    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        if _is_too_long(state, start) or _is_too_long(state, start + 1):
            return False
        return bool(table(state, start, end, silent))

    return rule


def _with_few_attributes(html_block: Any) -> Any:
    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        first, last = state.bMarks[start], state.eMarks[start]
        if last - first > MAX_ATTRIBUTES:
            closing = state.src.find(">", first, last)
            if state.src.count(" ", first, last if closing < 0 else closing) > MAX_ATTRIBUTES:
                return False
        return bool(html_block(state, start, end, silent))

    return rule


def _within_lines(reference: Any) -> Any:
    """Return the rule for link definitions with limited look-ahead."""

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        last = state.lineMax
        state.lineMax = min(last, start + MAX_DEFINITION_LINES)
        try:
            return bool(reference(state, start, end, silent))
        finally:
            state.lineMax = last

    return rule
