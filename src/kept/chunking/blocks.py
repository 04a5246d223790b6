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

MAX_TABLE_COLUMNS = 1_000
MAX_DEFINITION_LINES = 32
"""A link definition that goes on for longer is a paragraph. The parser's own rule takes quadratic time to find out."""
_LINE_RULES = ["paragraph", "reference", "blockquote", "list"]


@frozen
class Budget:
    """What one note may cost. A note beyond any of these is cut by lines alone."""

    lines: int = 100_000
    steps: int = 300_000
    """How often the parser may look at a line: once for each block that the line might begin or end."""
    tokens: int = 300_000
    chunks: int = 20_000


class BudgetExceeded(Exception):
    """The text needs more work than its budget allows."""


def parse_blocks(lines: list[str], budget: Budget) -> list[Token]:
    """Return the parser's tokens. Raise BudgetExceeded where the text is too complex."""
    if len(lines) > budget.lines:
        raise BudgetExceeded
    return _parser().parse("\n".join(lines), {"steps": budget.steps, "tokens": budget.tokens})


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import reference, table

    parser = MarkdownIt("commonmark").enable("table")
    # Only the block structure is needed: emphasis and links are never looked at.
    parser.core.ruler.enableOnly(["normalize", "block"])
    rules = parser.block.ruler
    rules.at("table", _within_columns(table), {"alt": ["paragraph", "reference"]})
    rules.at("reference", _within_lines(reference))
    rules.before("table", "budget", _spend_step, {"alt": _LINE_RULES})
    return parser


def _spend_step(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A rule that never matches. The parser tries it first, for every line that it looks at."""
    env = state.env
    env["steps"] = left = env["steps"] - 1
    if left < 0 or len(state.tokens) > env["tokens"]:
        raise BudgetExceeded
    return False


def _within_columns(table: Any) -> Any:
    """The table rule for tables of a sensible width. The line below the head has a mark for each column."""

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        first, last = state.bMarks[start + 1], state.eMarks[start + 1]  # there is always one line more than there are
        if last - first > MAX_TABLE_COLUMNS and state.src.count("|", first, last) > MAX_TABLE_COLUMNS:
            return False
        return bool(table(state, start, end, silent))

    return rule


def _within_lines(reference: Any) -> Any:
    """The rule for link definitions, with an end to how far it reads ahead."""

    def rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        last = state.lineMax
        state.lineMax = min(last, start + MAX_DEFINITION_LINES)
        try:
            return bool(reference(state, start, end, silent))
        finally:
            state.lineMax = last

    return rule
