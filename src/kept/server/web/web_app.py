"""The application: routes of all screens, forms that are checked, errors as pages, and the guards in front of it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from importlib.resources import files
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kept.base.grants import Grant
from kept.base.net.serving import GRANT, ROUTE, App, Guard, Receive, Scope, Send
from kept.base.redact import Redactor
from kept.config.agent_config import secrets_of
from kept.errors import KeptError, UsageError
from kept.server.web import (
    changes_screen,
    chat_screen,
    conversations_screen,
    forget_screen,
    health_screen,
    note_screen,
    review_screen,
    search_screen,
    settings_screen,
    timeline_screen,
)
from kept.server.web.access import BrowserGuard, PolicyHeaders, SignIn, WebAccess, read_form
from kept.server.web.page_templates import Renderer, make_renderer
from kept.server.web.visit import Page, Site, Visit

_THREADS = 8
_FORM_OVERHEAD = 65_536
_STATIC_FILES = StaticFiles(directory=str(files("kept.server.web").joinpath("static")))

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


SCREENS = (
    search_screen.SCREEN,
    timeline_screen.SCREEN,
    note_screen.SCREEN,
    conversations_screen.SCREEN,
    chat_screen.SCREEN,
    changes_screen.SCREEN,
    review_screen.SCREEN,
    forget_screen.SCREEN,
    health_screen.SCREEN,
    settings_screen.SCREEN,
)
"""The screens, in the order of the navigation. To add one, write a module with a `Screen` and list it here."""


def make_web_app(site: Site, access: WebAccess, *, hosts: Iterable[str] = ()) -> App:
    """Return the application behind its guards. ``hosts`` are the names under which it is reached, besides loopback."""
    render = make_renderer(site.memory.clock, SCREENS)
    pages = PageRunner(site, render, access)
    sign_in = SignIn(render, access, agent_id=site.config.agent_id)
    routes = [
        Mount("/static", _static),
        *sign_in.routes,
        *(
            Route(page.path, pages.endpoint(page, screen.name), methods=[*page.methods])
            for screen in SCREENS
            for page in screen.pages
        ),
    ]
    starlette = Starlette(routes=routes, exception_handlers={404: pages.missing, 405: pages.missing})
    guarded = BrowserGuard(starlette, access, sign_in)
    return PolicyHeaders(Guard(guarded, hosts=hosts))


async def _static(scope: Scope, receive: Receive, send: Send) -> None:
    scope[ROUTE] = "/static/{name}"
    await _STATIC_FILES(scope, receive, send)


class PageRunner:
    """Runs the functions behind pages: in threads, with checked forms, and with errors as pages."""

    def __init__(self, site: Site, render: Renderer, access: WebAccess) -> None:
        self._site = site
        self._render = render
        self._access = access
        self._hide_secrets = Redactor(secrets_of(site.config))
        self._limiter = anyio.CapacityLimiter(_THREADS)

    def endpoint(self, page: Page, screen: str) -> Endpoint:
        async def answer(request: Request) -> Response:
            cookie: str = request.scope["kept.cookie"]
            visit = self._visit(request, {}, screen)
            request.scope[ROUTE] = page.path
            try:
                grant: Grant = request.scope[GRANT]
                grant.require_agent(self._site.config.agent_id)
                grant.require_everybody()
                grant.require(page.act)
                if request.method == "POST":
                    visit = self._visit(request, await self._read_form(request, cookie), screen)
                if inspect.iscoroutinefunction(page.handler):
                    response: Response = await page.handler(visit)
                    return response
                return await self._in_thread(partial(page.handler, visit))
            except ClientDisconnect:
                return Response(status_code=400)  # the browser is gone, and does not read it
            except KeptError as exc:
                error = exc
            except Exception as exc:
                log.exception("a page failed")
                hint = "The terminal that runs 'kept web' shows the details."
                error = KeptError(f"Unexpected error: {type(exc).__name__}.", hint=hint)
            return await self._in_thread(partial(self._show_error, visit, error))

        return answer

    async def _in_thread(self, action: Callable[[], Any]) -> Response:
        response: Response = await anyio.to_thread.run_sync(action, limiter=self._limiter)
        return response

    def _visit(self, request: Request, form: dict[str, str], screen: str = "") -> Visit:
        token = self._access.form_token(request.scope["kept.cookie"])
        return Visit(self._site, self._render, request, form, token, screen)

    async def _read_form(self, request: Request, cookie: str) -> dict[str, str]:
        """Return the fields of a form. Raise UsageError unless it is a form of a page that this browser got."""
        # A byte may be sent as three.
        form = await read_form(request, 3 * self._site.memory.settings.max_file_bytes + _FORM_OVERHEAD)
        if not self._access.knows_form_token(cookie, form.pop("form_token", "")):
            raise UsageError(
                "This form is too old, or not of this page.", hint="Go back, reload the page, and try again."
            )
        return form

    # errors

    def _show_error(self, visit: Visit, error: KeptError) -> Response:
        message, hint = map(self._hide_secrets, (error.message, error.hint))
        return visit.render("error.html", status=error.http, message=message, hint=hint, code=error.code)

    async def missing(self, request: Request, exc: Exception) -> Response:
        status = getattr(exc, "status_code", 404)
        message = "There is no such page." if status == 404 else f"This page does not take {request.method}."
        show = partial(
            self._visit(request, {}).render, "error.html", status=status, message=message, hint="", code="not_found"
        )
        return await self._in_thread(show)
