"""Routes by path to the parts of the server."""

from __future__ import annotations

from collections.abc import Mapping

from kept.grants import Grant
from kept.mcp.transports import PATH as MCP_PATH
from kept.net.serving import GRANT, App, Receive, Scope, Send, describe_refusal, note_route, refuse
from kept.serve.probes import HEALTH, METRICS, READY

MESSAGES = "/v1/"
OF_CONVERSATIONS = ("/chat", "/recall", "/open")
"""Paths of pages that one process has to answer: an answer that is being written, a measurement that runs, and links
that open the pages once."""


class PathSwitch:
    """ASGI application that passes requests on by their path."""

    def __init__(
        self, *, mcp: App, messages: App, pages: App, probes: App, of_conversations: App | None = None
    ) -> None:
        self._mcp = mcp
        self._messages = messages
        self._pages = pages
        self._probes = probes
        self._of_conversations = of_conversations or pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not {".", ".."}.isdisjoint(path.split("/")):
            # Who passes a request on may resolve it, and another part would answer than the one that was chosen here.
            await refuse(
                send, 400, describe_refusal(path, 400, "path_refused", "The path must not have dots for folders.")
            )
            return
        if path == MCP_PATH:
            note_route(scope, MCP_PATH)  # also if its guard refuses the request
        await self._choose(path)(scope, receive, send)

    def _choose(self, path: str) -> App:
        if path == MCP_PATH:
            return self._mcp
        if path.startswith(MESSAGES):
            return self._messages
        if path in (HEALTH, READY, METRICS):
            return self._probes
        if any(path == name or path.startswith(f"{name}/") for name in OF_CONVERSATIONS):
            return self._of_conversations
        return self._pages


def agent_switch(apps: Mapping[str, App], default: str) -> App:
    """Return an application that serves the memory of the agent that a token is for, or else of the default agent."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        grant: Grant | None = scope.get(GRANT)
        agent = grant.agent or default if grant is not None else default
        if agent in apps:
            await apps[agent](scope, receive, send)
        else:
            message = f"There is no agent '{agent}' any more. Create another token."
            await refuse(send, 403, describe_refusal(MCP_PATH, 403, "agent_not_found", message))

    return answer
