"""Answering messages: of all processes that serve a home, the one that holds the lock of the gateway does.

The inbox of an agent has one writer. So the others pass on whatever belongs to a conversation: messages over HTTP, and
the chat on the pages. When that process ends, however it does, the kernel drops the lock, and another one takes over
and goes on with the messages that were accepted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kept.channels.gateway import Gateway, OpenModel, ServedAgent, finish_forgets
from kept.config import Config, LoadedConfig
from kept.config.agent_paths import GATEWAY_LOCK
from kept.durable import make_private_folder
from kept.error_statuses import status_of
from kept.errors import ConfigError, KeptError, WriteFailed
from kept.file_lock import claimed
from kept.memory import Memory
from kept.net import serving
from kept.net.serving import App, Receive, Scope, Send, ServerLimits, describe_refusal, refuse
from kept.remote_errors import ChannelUnavailable
from kept.serve.forwarding import ForwardEntry, Forwarder, SocketFolder
from kept.sessions.store import SessionStore
from kept.values import frozen

POLL_S = 1.0
"""Time between two attempts to become the process that answers."""

log = logging.getLogger(__name__)


@frozen
class SharedAgent:
    """Memory and conversations of an agent, which all parts of the server use."""

    loaded: LoadedConfig
    memory: Memory
    sessions: SessionStore


class Answering:
    """The part of the server that belongs to one process at a time. As an ASGI application it answers the routes of
    the HTTP channel."""

    def __init__(
        self,
        config: Config,
        agents: Sequence[SharedAgent],
        open_model: OpenModel,
        *,
        report: Callable[[str], None],
        limits: ServerLimits,
    ) -> None:
        """``agents`` are those that answer messages; the first is the one of the command."""
        self._config = config
        self._agents = agents
        self._open_model = open_model
        self._report = report
        self._limits = limits
        make_private_folder(config.home)
        self._socket = SocketFolder(config.home)
        self._forwarder = Forwarder(self._socket.path)
        self._gateway: Gateway | None = None
        self._endpoints: App | None = None
        self._problem: KeptError | None = None
        self._stop = asyncio.Event()
        self.inner: App = self
        """What other processes reach."""
        self.is_ours = False
        """True if this process answers."""
        self.settled = asyncio.Event()
        """Set once it is known whether this process answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.is_ours:
            await self._forwarder(scope, receive, send)
        elif self._endpoints is not None:
            await self._endpoints(scope, receive, send)
        else:
            error = self._problem or ChannelUnavailable("The HTTP channel is starting.")
            message = f"The HTTP channel is off: {error.message}"
            await refuse(send, 503, describe_refusal(scope["path"], 503, error.code, message), wait_s=5.0)

    def local_or_elsewhere(self, app: App) -> App:
        """Return an application that answers in this process if it is the one that answers, or else in the other."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await (app if self.is_ours else self._forwarder)(scope, receive, send)

        return answer

    def queue_depths(self) -> Mapping[str, int]:
        """Return how many messages wait, by agent. Empty in a process that does not answer."""
        responders = self._gateway.responders if self._gateway else {}
        return {name: responder.limits.total for name, responder in responders.items()}

    async def run(self) -> None:
        """Answer whenever no other process does, until `stop` is called."""
        try:
            while not self._stop.is_set():
                await asyncio.to_thread(finish_forgets, [agent.loaded for agent in self._agents])
                with claimed(os.path.join(self._config.home, GATEWAY_LOCK)) as is_ours:
                    if is_ours:
                        await self._answer()
                        return
                self.settled.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), POLL_S)
        finally:
            self.settled.set()
            await self._forwarder.close()
            self._socket.close()

    @property
    def has_reported(self) -> bool:
        """True if the gateway inside has reported that it stopped."""
        return self._gateway is not None

    def stop(self) -> None:
        """Finish the accepted messages, then stop. A second call leaves them to another process."""
        self._stop.set()
        if self._gateway is not None:
            self._gateway.stop()

    async def _answer(self) -> None:
        models = []
        server = serving.make_server(ForwardEntry(self.inner), self._limits)
        bound = self._listen()
        try:
            try:
                self._require_responder()
                models = [await asyncio.to_thread(self._open_model, agent.loaded) for agent in self._agents]
                self._gateway = self._open_gateway(models)
                if self._config.gateway.http.enabled:
                    self._endpoints = self._gateway.make_endpoints()
            except KeptError as exc:
                self._problem = exc
                self._report(f"Messages are not answered: {exc.message}")
                log.warning("messages are not answered: %s (%d)", exc.code, status_of(exc).http)
            serving_others = asyncio.create_task(server.serve(sockets=[bound])) if bound else None
            self.is_ours = True
            self.settled.set()
            if self._gateway is not None and not self._stop.is_set():
                await self._gateway.run_embedded()
            else:
                await self._stop.wait()
            server.should_exit = True
            if serving_others is not None:
                await serving_others
        finally:
            self._socket.remove()
            if bound is not None:
                bound.close()
            await asyncio.gather(*(model.close() for model in models))

    def _listen(self) -> socket.socket | None:
        """Return the socket for other processes. Without one, on a full disk for example, this process serves alone."""
        try:
            return self._socket.listen()
        except WriteFailed as exc:
            self._report(f"Other processes of this home cannot pass on messages: {exc.message}")
            return None

    def _require_responder(self) -> None:
        if not self._config.gateway.auto_responder.enabled:
            raise ConfigError("gateway.auto_responder.enabled is false.", hint="Set it to true.")

    def _open_gateway(self, models: Sequence[object]) -> Gateway:
        served = [
            ServedAgent(agent.memory, agent.sessions, model)  # type: ignore[arg-type]
            for agent, model in zip(self._agents, models, strict=True)
        ]
        first, *others = served
        return Gateway(first.memory, first.sessions, first.model, others=others, report=self._report)
