"""The tokens that let a request in: those of the home, and how often each may be used."""

from __future__ import annotations

from kept.access_tokens import TokenWatch
from kept.clock import Clock, utc_now
from kept.config import Config
from kept.grants import Grant
from kept.net.endpoint import is_loopback
from kept.net.rate_limit import RateLimiter


class HomeTokens:
    """`TokenGate` for the tokens of a home."""

    def __init__(self, config: Config, host: str, clock: Clock) -> None:
        settings = config.gateway.serve
        self._watch = TokenWatch(config.home)
        self._clock = clock
        self._limiter = RateLimiter(settings.token_rate_per_s, settings.token_burst)
        self._always = has_settings_token(config) or not is_loopback(host)

    @property
    def is_required(self) -> bool:
        return self._always or self._watch.is_in_use

    def find(self, sent: bytes) -> Grant | None:
        return self._watch.find(sent, utc_now(self._clock))

    def find_by_id(self, token_id: str) -> Grant | None:
        return self._watch.find_by_id(token_id, utc_now(self._clock))

    def wait_s(self, grant: Grant) -> float:
        return self._limiter.take(grant.token_id or grant.name)

    def holds(self, grant: Grant) -> bool:
        """Return whether a token that let a request in still does."""
        return not grant.token_id or self.find_by_id(grant.token_id) is not None

    def count_active(self) -> int:
        now = utc_now(self._clock)
        return sum(token.state(now) == "active" for token in self._watch.book().tokens)


def has_settings_token(config: Config) -> bool:
    gateway = config.gateway
    return bool(gateway.mcp.token or gateway.http.token or gateway.http.user_tokens or gateway.web.token)
