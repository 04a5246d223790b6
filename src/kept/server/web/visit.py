"""A visit: one request of a browser, with what a page needs to answer it; and the pages of a screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kept.base.grants import Act, Grant
from kept.base.net.serving import GRANT
from kept.base.values import frozen
from kept.memory import Memory
from kept.notes.workspace import is_instruction
from kept.server.web.page_templates import PageTemplates
from kept.server.web.site import Site

NOTICE_COOKIE = "kept-notice"
THEME_COOKIE = "kept-theme"
THEMES = ("auto", "light", "dark")
_MAX_NOTICE = 300
_NOBODY = Grant("", "", frozenset())


class Visit:
    """One request. ``form`` has the fields of a form whose token was checked; it is empty for other requests."""

    def __init__(
        self,
        site: Site,
        templates: PageTemplates,
        request: Request,
        *,
        form: Mapping[str, str],
        form_token: str,
        screen: str = "",
    ) -> None:
        self.site = site
        self.request = request
        self.form = form
        self.form_token = form_token
        self.query: Mapping[str, str] = request.query_params
        self.path: Mapping[str, str] = request.path_params
        self.grant: Grant = request.scope.get(GRANT, _NOBODY)
        self._templates = templates
        self._screen = screen

    @property
    def memory(self) -> Memory:
        return self.site.memory

    def require_change(self, path: str) -> None:
        """Raise ScopeMissing if the note at a path instructs agents, and the visitor may not change such a note."""
        if is_instruction(self.memory.workspace, path):
            self.grant.require("change instructions")

    @property
    def url(self) -> str:
        """Path and query of this request."""
        query = self.request.url.query
        return self.request.url.path + (f"?{query}" if query else "")

    @property
    def theme(self) -> str:
        theme = self.request.cookies.get(THEME_COOKIE, "auto")
        return theme if theme in THEMES else "auto"

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """Return a number of the query, or the default if it is none. It is moved into the range."""
        text = self.query.get(name, "")
        is_number = text.isascii() and text.isdigit() and len(text) < 12
        return max(least, min(int(text), most)) if is_number else default

    def back(self, default: str) -> str:
        """Return the page of ours that the form names in ``back``, or the default."""
        url = self.form.get("back", "")
        return url if url.startswith("/") and not url.startswith(("//", "/\\")) else default

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        notice = unquote(self.request.cookies.get(NOTICE_COOKIE, ""))[:_MAX_NOTICE]
        text = self._templates.render(
            template,
            **values,
            agent=self.site.config.agent_id,
            form_token=self.form_token,
            current_screen=self._screen,
            indexing=self.site.indexing(),
            review_count=self.memory.review.count(),
            notice=notice,
            theme=self.theme,
            url=self.url,
        )
        response = HTMLResponse(text, status)
        if notice:
            response.delete_cookie(NOTICE_COOKIE)
        return response

    def redirect(self, url: str, *, notice: str = "") -> Response:
        """Send the browser to another page after a change. ``notice`` is shown there once."""
        response = RedirectResponse(url, 303)
        if notice:
            value = quote(notice[:_MAX_NOTICE])
            response.set_cookie(NOTICE_COOKIE, value, max_age=60, httponly=True, samesite="strict")
        return response


Handler = Callable[[Visit], Response | Awaitable[Response]]
"""Function behind a page. A plain function runs in a thread; a coroutine function runs in the event loop and must not
block it."""


@frozen
class Page:
    """A path and the function that answers it. ``POST`` is for changes: the token of the form is checked before."""

    path: str
    handler: Handler
    act: Act
    """What the visitor does there, for which a token needs a scope."""
    methods: tuple[str, ...] = ("GET",)


@frozen
class Screen:
    """Pages about one thing, and their entry in the navigation."""

    name: str
    """Name of its icon, and of its entry in the navigation."""
    label: str
    home: str
    """Path that the navigation leads to."""
    pages: tuple[Page, ...]
    key: str = ""
    """Letter that opens it after 'g'."""
