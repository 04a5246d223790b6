"""Switchboard: hands each message to the agent that the routes name, so that one gateway serves several agents.

Every agent has its own inbox, queues and sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kept.agent.events import Inbound
from kept.base.grants import Grant
from kept.base.remote_errors import MessageConflict
from kept.config.gateway_settings import RouteSettings
from kept.errors import AgentNotFound
from kept.gateway.dispatcher import act_of
from kept.gateway.inbox import AcceptedMessage
from kept.gateway.responder import Responder
from kept.sessions.people import account_of
from kept.sessions.session_key import SessionKey

ANY_AGENT = "*"
"""Agent in the key of a chat that is not routed yet."""


class Switchboard:
    """Routes one set of channels to the responders of several agents."""

    def __init__(self, responders: Mapping[str, Responder], routes: Iterable[RouteSettings], *, default: str) -> None:
        self.responders = responders
        self._routes = tuple(routes)
        self._default = default

    def route(self, key: SessionKey, agent: str | None = None) -> SessionKey:
        """Return a key with the agent of its chat, or with the one that a client names."""
        if agent is not None and agent not in self.responders:
            names = ", ".join(self.responders)
            raise AgentNotFound(f"This gateway does not serve an agent '{agent}'.", hint=f"It serves: {names}.")
        account = account_of(key) if self._routes else None
        chats = (None, key.user_id, account.name if account else None)  # with its topic, and without
        fitting = (
            route.agent
            for route in self._routes  # the first that fits decides
            if route.channel in (None, key.channel) and route.account in (None, key.account_id) and route.chat in chats
        )
        return replace(key, agent_id=agent or next(fitting, self._default))

    async def accept(self, key: SessionKey, message: Inbound, grant: Grant | None = None) -> AcceptedMessage:
        """Accept a message for the agent of its key. Message ids are unique per channel, across agents. Raise
        ScopeMissing if the token of the sender does not allow what the message does; ``grant`` is None for a sender
        who needs no token."""
        if grant is not None:
            grant.require(act_of(message))
        others = (responder for agent, responder in self.responders.items() if agent != key.agent_id)
        if any(responder.inbox.find(key.channel, message.id) for responder in others):
            raise MessageConflict(f"Another agent has a message with the id '{message.id}'.")
        return await self.responders[key.agent_id].accept(key, message)

    def find_chat(self, approval_id: str) -> SessionKey | None:
        """Return the key of the chat in which a call of a tool waits for a person, or None."""
        return next((key for each in self.responders.values() if (key := each.find_chat(approval_id))), None)

    def decide(self, approval_id: str, *, allow: bool, by: str) -> bool:
        return any(each.approvals.decide(approval_id, allow=allow, by=by) for each in self.responders.values())

    def holder(self, channel: str, message_id: str) -> Responder:
        """Return the responder that has accepted a message; that of the default agent if there is none."""
        holders = (each for each in self.responders.values() if each.inbox.find(channel, message_id))
        return next(holders, self.responders[self._default])
