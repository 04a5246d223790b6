"""Signing in: the one-time link of `kept web`, or a token."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from kept.base.grants import Grant
from kept.base.net.serving import Receive, Scope, Send, note_route
from kept.server.web.page_templates import PageTemplates
from kept.server.web.web_access import COOKIE_DAYS, WebAccess

_MOST_BYTES = 4_096
_MOST_CHALLENGE = 100


class SignIn:
    """Pages for browsers without a cookie. As an ASGI application, it answers whatever they ask for."""

    def __init__(self, templates: PageTemplates, access: WebAccess, *, agent_id: str) -> None:
        self._templates = templates
        self._access = access
        self._agent_id = agent_id
        self.routes = [
            Route("/open", self._open),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/hello", self._hello),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._show(Request(scope), "none"))(scope, receive, send)

    async def _show(self, request: Request, problem: str, status: int = 401) -> Response:
        access = self._access
        values = {"problem": problem, "has_token": access.has_tokens, "takes_links": access.takes_links}
        return await self._page("sign_in.html", request, status, agent=self._agent_id, **values)

    async def _page(self, template: str, request: Request, status: int, **values: Any) -> Response:
        theme = request.cookies.get("kept-theme", "auto")
        text = await anyio.to_thread.run_sync(lambda: self._templates.render(template, theme=theme, **values))
        return HTMLResponse(text, status)

    async def _open(self, request: Request) -> Response:
        """Exchange a one-time link for a cookie.

        The answer is a page that leads on, rather than a redirect: after a link on another page, a browser would
        not send the cookie with the redirect.
        """
        note_route(request.scope, "/open")
        if not self._access.take_link_key(request.query_params.get("key", "")):
            if request.scope["kept.cookie"]:
                return RedirectResponse("/", 303)
            return await self._show(request, "used")
        return self._signed_in(request, await self._page("opening.html", request, 200))

    async def _log_in(self, request: Request) -> Response:
        note_route(request.scope, "/login")
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BYTES:
                    return await self._show(request, "wrong")
        except ClientDisconnect:
            return Response(status_code=400)  # the browser is gone, or others needed its connection
        fields = parse_qs(body.decode("utf-8", "replace"))
        grant = self._access.find_grant("".join(fields.get("token", [])))
        if grant is None:
            return await self._show(request, "wrong")
        if grant.person is not None or not grant.reaches(self._agent_id):
            return await self._show(request, "other", 403)
        return self._signed_in(request, RedirectResponse("/", 303), grant)

    async def _hello(self, request: Request) -> Response:
        """Prove to another `kept web` that this server is for the same agent."""
        note_route(request.scope, "/hello")
        return PlainTextResponse(self._access.answer(request.query_params.get("challenge", "")[:_MOST_CHALLENGE]))

    def _signed_in(self, request: Request, response: Response, grant: Grant | None = None) -> Response:
        is_secure = request.headers.get("x-forwarded-proto", "") == "https"
        response.set_cookie(
            self._access.cookie_name,
            self._access.make_cookie(grant),
            max_age=COOKIE_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=is_secure,
        )
        return response
