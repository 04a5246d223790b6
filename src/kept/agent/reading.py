"""Having a model read a conversation that may be longer than it takes: in pieces, smaller where it says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kept.context.talk import Piece, pieces_of
from kept.context.view import LoggedMessage
from kept.errors import ContextOverflow

_HALVINGS = 3


async def read_in_pieces(
    said: Sequence[LoggedMessage],
    budget_tokens: int,
    read: Callable[[Piece], Awaitable[None]],
    *,
    halvings: int = _HALVINGS,
) -> None:
    """In order. What was read stays read, should a later piece fail."""
    for piece in pieces_of(said, budget_tokens):
        try:
            await read(piece)
        except ContextOverflow:
            if halvings == 0:
                raise
            inside = [one for one in said if piece.first_line <= one.line <= piece.last_line]
            await read_in_pieces(inside, budget_tokens // 2, read, halvings=halvings - 1)
