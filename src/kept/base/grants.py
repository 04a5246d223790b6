"""Rights of a token: scopes, what each of them allows, and the agent or the person that the token is for.

`NEEDED` is the only list of what needs which scope. Every tool, route, page and command names an act of it, so that a
token can do the same by every way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from kept.base.values import frozen
from kept.errors import ScopeMissing

TokenScope = Literal["read", "write", "review", "admin"]

SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)
_INCLUDED: dict[TokenScope, frozenset[TokenScope]] = {
    "read": frozenset({"read"}),
    # The answer to a write quotes notes, and a review shows them. So neither can be had without reading.
    "write": frozenset({"read", "write"}),
    "review": frozenset({"read", "review"}),
    "admin": frozenset(SCOPES),
}
OF_A_PERSON: tuple[TokenScope, ...] = ("read", "write", "review")
"""Scopes that a token for one person may have. `admin` is about everybody's memory; `review` decides about the calls of
tools in that person's conversations, since the pages are closed to such a token."""

Act = Literal[
    "read",
    "write notes",
    "talk to the agent",
    "change instructions",
    "review changes",
    "decide about calls of tools",
    "forget",
    "change settings",
]
NEEDED: Mapping[Act, TokenScope] = {
    "read": "read",
    "write notes": "write",
    "talk to the agent": "write",
    "change instructions": "review",
    "review changes": "review",
    "decide about calls of tools": "review",
    "forget": "admin",
    "change settings": "admin",
}
"""Scope that each act needs. Whoever changes instructions writes a note, so that takes both scopes."""


@frozen
class Grant:
    """Rights of a request. ``token_id`` is empty for who came by a one-time link."""

    token_id: str
    name: str
    scopes: frozenset[TokenScope]
    agent: str | None = None
    person: str | None = None

    def allows(self, act: Act) -> bool:
        return any(NEEDED[act] in _INCLUDED[own] for own in self.scopes)

    def require(self, act: Act) -> None:
        """Raise ScopeMissing unless the token has the scope for an act."""
        if not self.allows(act):
            raise ScopeMissing(f"The token '{self.name}' lacks the scope '{NEEDED[act]}', which is needed to {act}.")

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
