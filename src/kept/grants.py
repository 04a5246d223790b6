"""Rights of a token: scopes, and the agent, the person or the workspace that the token is for."""

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
    """What a request may do. ``token_id`` is empty for a token of the settings."""

    token_id: str
    name: str
    scopes: frozenset[TokenScope]
    agent: str | None = None
    person: str | None = None
    workspace: str | None = None
    agents: frozenset[str] = frozenset()
    """Agents of this machine that have the workspace, if the token is for one. Until a server names them, it reaches
    none."""

    def allows(self, scope: TokenScope) -> bool:
        return any(scope in _INCLUDED[own] for own in self.scopes)

    def require(self, scope: TokenScope) -> None:
        """Raise ScopeMissing unless the token has the scope."""
        if not self.allows(scope):
            raise ScopeMissing(f"The token '{self.name}' lacks the scope '{scope}'.")

    @property
    def reaches_all(self) -> bool:
        """True if the token is neither for one agent nor for one workspace."""
        return self.agent is None and self.workspace is None

    def reaches(self, agent_id: str) -> bool:
        """Return whether the token is good for an agent, and for its workspace."""
        return self.agent in (None, agent_id) and (self.workspace is None or agent_id in self.agents)

    def choose_agent(self, default: str) -> str:
        """Return the agent that a request means which names none: the default one, if the token is good for it."""
        if self.agent is not None or self.reaches(default) or not self.agents:
            return self.agent or default
        return min(self.agents)

    def require_agent(self, agent_id: str) -> None:
        """Raise ScopeMissing if the token is for another agent, or for another workspace than that of the agent."""
        if self.agent not in (None, agent_id):
            raise ScopeMissing(f"The token '{self.name}' is for the agent '{self.agent}'.")
        if not self.reaches(agent_id):
            raise ScopeMissing(f"The token '{self.name}' is for another workspace than that of '{agent_id}'.")

    def require_everybody(self) -> None:
        """Raise ScopeMissing if the token is for one person."""
        if self.person is not None:
            raise ScopeMissing(f"The token '{self.name}' is for one person, and this shows everybody's memory.")


def grant_of_settings(name: str) -> Grant:
    """Return what a token of the settings allows: everything on the part of the server that it is for."""
    return Grant("", name, frozenset({"admin"}))
