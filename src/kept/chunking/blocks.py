"""The block structure of a note, parsed within a budget.

Some texts cost the parser far more than their length suggests: a line of nineteen nested quotes makes it read every
line below it nineteen times, and each cell of a table is three objects. The budget counts work, never time: the same
text is always within it or always beyond it, however busy the machine is.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kept.values import frozen

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

MAX_TABLE_CHARS = 20_000
"""Longer lines are not table rows: the parser's own rule needs quadratic time and much memory to split them."""
MAX_ATTRIBUTES = 20_000
"""A tag with more attributes is not HTML: the pattern that recognises it would need much memory."""
MAX_DEFINITION_LINES = 32
"""A longer link definition is a paragraph. The parser's own rule would take quadratic time."""
_LINE_RULES = ["paragraph", "reference", "blockquote", "list"]


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


def parse_blocks(lines: list[str], budget: ChunkingBudget) -> list[Token]:
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
