"""The gateway: all configured channels in front of the responders of one or several agents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kept.agent.material import read_checklist
from kept.base.net.serving import App
from kept.config import Config, LoadedConfig
from kept.config.agent_config import FORGETTING
from kept.config.layers import settings_by_agent
from kept.errors import AgentNotFound, ConfigError, LockBusy
from kept.gateway.channel import Channel, ResponderTiming, Switchboard
from kept.gateway.channels import http
from kept.gateway.channels.chat_intake import BotChannel
from kept.gateway.channels.discord import DiscordChannel, find_discord_token
from kept.gateway.channels.telegram import TelegramChannel, bot_tokens
from kept.gateway.dispatcher import Dispatcher
from kept.gateway.inbox import Inbox
from kept.gateway.responder import Responder
from kept.gateway.scheduler import OWN_CHANNEL, Scheduler
from kept.memory import Memory
from kept.sessions.people import NO_OWNER, People
from kept.sessions.session_key import DEFAULT_ACCOUNT
from kept.storage.open import GATEWAY_LEASE, INBOX_LEASE, open_agent, open_home

if TYPE_CHECKING:
    from kept.models.base import ChatModel

Report = Callable[[str], None]
"""Shows a line to the person who runs the gateway."""
OpenModel = Callable[[LoadedConfig], "ChatModel"]

_LEASE_WAIT_S = 0.5
"""A command that only looks whether a gateway runs, holds the lease for a moment."""
_SESSION_AGE = "gateway.auto_responder.session_max_age_ms"

log = logging.getLogger(__name__)


SHUTDOWN_TIMEOUT_S = 30.0
"""How long a stopping gateway works on accepted messages."""


def finish_forgets(served: Sequence[LoadedConfig]) -> None:
    """Finish what was being forgotten, before the inbox is open: only then may it be changed."""
    for agent in served:
        if open_agent(agent.config).documents.find(FORGETTING):
            with Memory.of(agent) as memory:
                memory.forgetting.finish()


def served_agents(loaded: LoadedConfig) -> list[LoadedConfig]:
    """Return the settings of the agents that a gateway serves: the one of the command, and those of the routes."""
    names = dict.fromkeys(route.agent for route in loaded.config.gateway.routes)
    names.pop(loaded.config.agent_id, None)
    if not names:
        return [loaded]
    known = settings_by_agent(loaded)
    for name in names:
        if name not in known:
            hint = f"Create it with 'kept --agent {name} init', or correct the route. There are: {', '.join(known)}."
            raise AgentNotFound(f"gateway.routes names an agent '{name}', and there is none.", hint=hint)
    return [loaded, *(known[name] for name in names)]


def hold_gateway_lease(config: Config, held: ExitStack) -> None:
    """Hold the gateway's lease of a home until ``held`` is closed. Two gateways would answer every message twice."""
    try:
        held.enter_context(open_home(config).lease(GATEWAY_LEASE, wait_s=_LEASE_WAIT_S))
    except LockBusy as exc:
        hint = "Stop it, or give this one another --home."
        raise LockBusy(f"Another process answers the messages of {config.home}.", hint=hint) from exc


def with_session_age(loaded: LoadedConfig) -> LoadedConfig:
    """Return the configuration with the gateway's own setting for the age of a session, if it is set."""
    if _SESSION_AGE not in loaded.origins:
        return loaded
    age_ms = loaded.config.gateway.auto_responder.session_max_age_ms
    reset = loaded.config.agent.session.reset
    minutes = -(-age_ms // 60_000)
    reset = replace(reset, mode="idle", idle_minutes=minutes) if minutes else replace(reset, mode="none")
    agent = replace(loaded.config.agent, session=replace(loaded.config.agent.session, reset=reset))
    return replace(loaded, config=replace(loaded.config, agent=agent))


class Gateway:
    """Answers messages until it is stopped: those of the first agent, and of others as the routes say."""

    def __init__(self, agents: Sequence[Dispatcher], *, report: Report, timing: ResponderTiming | None = None) -> None:
        config = agents[0].memory.config
        timing = timing or ResponderTiming()
        self._settings = config.gateway
        self._people = People(config)
        self._report = report
        self.leases = ExitStack()
        """Held until `run` ends: only this gateway writes the inboxes."""
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._services: dict[str, BotChannel] = {}
        for account in bot_tokens(config):
            name = "telegram" if account == DEFAULT_ACCOUNT else f"telegram/{account}"
            self._services[name] = TelegramChannel(config, timing, account_id=account)
        if find_discord_token(config):
            self._services["discord"] = DiscordChannel(config, timing)
        names = (http.NAME, http.CHAT_NAME) if self._settings.http.enabled else ()
        fetched = {name: Channel(debounce_ms=self._settings.http.debounce_ms) for name in names}
        channels = {**fetched, **self._services, OWN_CHANNEL: Channel()}
        if len(channels) == 1:
            hint = "Set gateway.http.enabled, gateway.telegram.token or gateway.discord.token."
            raise ConfigError("No channel is configured.", hint=hint)
        slots = asyncio.Semaphore(self._settings.auto_responder.max_concurrent)
        self.responders: dict[str, Responder] = {}
        self._schedulers: list[Scheduler] = []
        for agent in agents:
            memory = agent.memory
            responder = self._open_responder(agent, channels, timing, slots)
            self.responders[memory.config.agent_id] = responder
            read = partial(read_checklist, memory)
            self._schedulers.append(Scheduler(responder, memory.config, clock=memory.clock, read_checklist=read))
        self.responder = self.responders[config.agent_id]
        routes = [route for route in self._settings.routes if route.agent in self.responders]
        self._front = Switchboard(self.responders, routes, default=config.agent_id)

    def _open_responder(
        self, agent: Dispatcher, channels: Mapping[str, Channel], timing: ResponderTiming, slots: asyncio.Semaphore
    ) -> Responder:
        """Open the inbox of an agent. All agents share the slots, so that no more answers are under way at a time."""
        storage = open_agent(agent.memory.config)
        lease = self.leases.enter_context(storage.lease(INBOX_LEASE, wait_s=_LEASE_WAIT_S))
        inbox = Inbox(storage, clock=agent.memory.clock, lease=lease)
        return Responder(agent, inbox, self._settings.auto_responder, channels, timing=timing, slots=slots)

    def make_endpoints(self) -> App:
        """Return the routes of the HTTP channel, without a guard."""
        clock = self.responder.inbox.clock
        return http.make_endpoints(self._front, clock=clock, people=self._people)

    async def run(self) -> None:
        """Answer until `stop` is called."""
        tasks: list[asyncio.Task[None]] = []
        try:
            if len(self.responders) > 1:
                self._report(f"Agents: {', '.join(self.responders)}")
            if any(each.sessions.config.agent.session.owner == "auto" for each in self.responders.values()):
                self._report(NO_OWNER)
            for responder in self.responders.values():
                await responder.start()
            tasks += [asyncio.create_task(scheduler.run()) for scheduler in self._schedulers]
            tasks += [asyncio.create_task(self._serve(name, service)) for name, service in self._services.items()]
            stop = asyncio.create_task(self._stop.wait())
            done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            for task in done - {stop}:
                task.result()  # raises the error of a channel that failed
        finally:
            await self._shut_down(tasks)
            self.leases.close()

    def stop(self) -> None:
        """Finish the accepted messages, then stop. A second call leaves them to the next start."""
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    async def _serve(self, service: str, channel: BotChannel) -> None:
        name = await channel.connect()
        self._report(f"{service.capitalize()}: @{name}, for {len(channel.allowed)} people")
        await channel.serve(self._front)

    async def _shut_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """Stop polling, then answer what was accepted."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        drained = (responder.drain(SHUTDOWN_TIMEOUT_S, at_once=self._at_once) for responder in self.responders.values())
        finished = all(await asyncio.gather(*drained))
        for service in self._services.values():
            await service.close()
        left = sum(responder.limits.count() for responder in self.responders.values())
        self._report(
            "Stopped." if finished else f"Stopped. The remaining messages ({left}) are answered after the next start."
        )
