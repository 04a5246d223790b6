"""The tokens that let a request in: those of the home or of the team, and how often each may be used."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from kept.access_tokens.open_tokens import has_unused_file, watch_tokens
from kept.clock import Clock, utc_now
from kept.config import Config
from kept.errors import StoreError
from kept.grants import Grant
from kept.net.endpoint import is_loopback
from kept.net.rate_limit import RateLimiter


class KnownTokens:
    """`TokenGate` for the tokens of a home, or of a team."""

    def __init__(self, config: Config, host: str, clock: Clock, *, workspaces: Mapping[str, str]) -> None:
        """``workspaces`` has the name of each agent's workspace."""
        settings = config.gateway.serve
        self._watch = watch_tokens(config)
        self._clock = clock
        self._workspaces = workspaces
        self._limiter = RateLimiter(settings.token_rate_per_s, settings.token_burst)
        self._always = has_settings_token(config) or not is_loopback(host) or has_unused_file(config)
        self._looking: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._watch.close()

    @property
    def is_required(self) -> bool:
        return self._always or self._watch.is_in_use

    def find(self, sent: bytes) -> Grant | None:
        return self._with_agents(self._watch.find(sent, utc_now(self._clock)))

    def find_by_id(self, token_id: str) -> Grant | None:
        return self._with_agents(self._watch.find_by_id(token_id, utc_now(self._clock)))

    def _with_agents(self, grant: Grant | None) -> Grant | None:
        """Name the agents that a token for a workspace is good for."""
        if grant is None or grant.workspace is None:
            return grant
        agents = {agent for agent, name in self._workspaces.items() if name == grant.workspace}
        return replace(grant, agents=frozenset(agents))

    async def look_again(self) -> None:
        """Look for tokens that another machine created a moment ago. Requests that come at the same time look once."""
        running = self._looking
        if running is not None and not running.done():
            await asyncio.wait([running])  # it may have begun before the token was created
        if self._looking is running or self._looking is None:
            self._looking = asyncio.create_task(asyncio.to_thread(self._watch.refresh))
        await asyncio.shield(self._looking)

    def wait_s(self, grant: Grant) -> float:
        return self._limiter.take(grant.token_id or grant.name)

    def holds(self, grant: Grant) -> bool:
        """Return whether a token that let a request in still does."""
        try:
            return not grant.token_id or self.find_by_id(grant.token_id) is not None
        except StoreError:
            return False

    def count_active(self) -> int | None:
        """Return how many tokens let somebody in, or None if the database of the team cannot be asked."""
        now = utc_now(self._clock)
        try:
            self._watch.refresh()
            return sum(token.state(now) == "active" for token in self._watch.book().tokens)
        except StoreError:
            return None


def has_settings_token(config: Config) -> bool:
    gateway = config.gateway
    return bool(gateway.mcp.token or gateway.http.token or gateway.http.user_tokens or gateway.web.token)
