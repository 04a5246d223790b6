"""Settings of the gateway: answering, channels, routes and pages."""

from __future__ import annotations

from dataclasses import field

from kept.base.values import frozen
from kept.config.read import bounded, secret


@frozen
class ResponderSettings:
    enabled: bool = True
    max_concurrent: int = bounded(3, 1, 100)
    debounce_ms: int = bounded(1500, 0, 600_000)
    max_history_messages: int = bounded(50, 0, 50)
    """Group messages kept since the last reply. The conversation with the agent is measured in tokens instead."""
    session_max_age_ms: int = bounded(14_400_000, 0, 1 << 40)
    memory_index_interval_messages: int = bounded(5, 1, 100_000)
    memory_search_max_results: int = bounded(5, 0, 200)
    max_queued: int = bounded(100, 1, 100_000)


@frozen
class HttpSettings:
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = bounded(8737, 0, 65_535)
    debounce_ms: int = bounded(0, 0, 600_000)
    """Programs send whole messages, so by default there is nothing to wait for."""


@frozen
class TelegramSettings:
    """The Telegram channel. It is on if there is a token."""

    token: str | None = secret()
    accounts: dict[str, str] = field(default_factory=dict, repr=False, metadata={"secret": True})
    """Tokens of further bots, each by a name for routes. They answer the same people."""
    allow_users: tuple[str, ...] = ()
    """Numeric ids, or names without '@'. A name can change hands; a number cannot."""
    base_url: str | None = None
    """Address of another Bot API server."""


@frozen
class DiscordSettings:
    """The Discord channel. It is on if there is a token."""

    token: str | None = secret()
    allow_users: tuple[str, ...] = ()
    """Numeric ids, or names without '@'."""
    read_along: bool = False
    """True to read messages on servers that are not addressed to the bot. The bot needs the message content intent."""
    base_url: str | None = None
    """Address of another REST server."""


@frozen
class WebSettings:
    """The pages of `kept web`."""

    enabled: bool = False
    """True to serve them from `kept gateway` too, at its port."""
    host: str = "127.0.0.1"
    port: int = bounded(8740, 0, 65_535)


@frozen
class ServeSettings:
    """`kept serve`, and what holds for the other servers too: names of hosts, proxies and limits."""

    host: str = "127.0.0.1"
    port: int = bounded(8750, 0, 65_535)
    allowed_hosts: tuple[str, ...] = ()
    """Further host names under which the server is reached, as in the Host header."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies, whose X-Forwarded-For is believed."""
    token_rate_per_s: float = bounded(20.0, 0, 1_000_000)
    """Requests a second with one token, in the long run; 0 is unlimited."""
    address_rate_per_s: float = bounded(50.0, 0, 1_000_000)
    """Requests a second from one address, in the long run; 0 is unlimited."""


@frozen
class RouteSettings:
    """An agent, and the messages that it answers. What is left out fits any message."""

    agent: str
    channel: str | None = None
    account: str | None = None
    """Account of the gateway on the channel, such as one of several bots."""
    chat: str | None = None
    """Id of a person or a group on the channel."""


@frozen
class GatewaySettings:
    routes: tuple[RouteSettings, ...] = ()
    """Agents for messages, by channel, account and chat. The first that fits counts; otherwise the agent of the
    command answers."""
    auto_responder: ResponderSettings = ResponderSettings()
    http: HttpSettings = HttpSettings()
    web: WebSettings = WebSettings()
    serve: ServeSettings = ServeSettings()
    telegram: TelegramSettings = TelegramSettings()
    discord: DiscordSettings = DiscordSettings()
