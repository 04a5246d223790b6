"""Rights of a token: scopes, and the agent or the person that the token is for."""

from __future__ import annotations

from typing import Literal, get_args

from kept.errors import ScopeMissing
from kept.values import frozen

TokenScope = Literal["read", "write", "review", "admin"]

SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
_INCLUDED: dict[TokenScope, frozenset[TokenScope]] = {
    "read": frozenset({"read"}),
    # The answer to a write quotes notes, and a review shows them. So neither can be had without reading.
    "write": frozenset({"read", "write"}),
    "review": frozenset({"read", "review"}),
    "admin": frozenset(SCOPES),
}
OF_A_PERSON: tuple[TokenScope, ...] = ("read", "write")
"""Scopes that a token for one person may have. The others are about everybody's memory."""


@frozen
class Grant:
    """What a request may do. ``token_id`` is empty for who came by a one-time link."""

    token_id: str
    name: str
    scopes: frozenset[TokenScope]
    agent: str | None = None
    person: str | None = None

    def allows(self, scope: TokenScope) -> bool:
        return any(scope in _INCLUDED[own] for own in self.scopes)

    def require(self, scope: TokenScope) -> None:
        """Raise ScopeMissing unless the token has the scope."""
        if not self.allows(scope):
            raise ScopeMissing(f"The token '{self.name}' lacks the scope '{scope}'.")

    def reaches(self, agent_id: str) -> bool:
        """Return whether the token is good for an agent."""
        return self.agent in (None, agent_id)

    def require_agent(self, agent_id: str) -> None:
        """Raise ScopeMissing if the token is for another agent."""
        if not self.reaches(agent_id):
            raise ScopeMissing(f"The token '{self.name}' is for the agent '{self.agent}'.")

    def require_everybody(self) -> None:
        """Raise ScopeMissing if the token is for one person."""
        if self.person is not None:
            raise ScopeMissing(f"The token '{self.name}' is for one person, and this shows everybody's memory.")
