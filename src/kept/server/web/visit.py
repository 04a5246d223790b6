"""A visit: one request of a browser with what a page needs to answer it; the site, and the pages of a screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kept.base.grants import Act, Grant
from kept.base.net.serving import GRANT
from kept.base.values import frozen
from kept.config import LoadedConfig
from kept.memory import Memory
from kept.notes.history.note_history import Author
from kept.notes.workspace import is_instruction
from kept.server.web.page_templates import Renderer
from kept.sessions.store import SessionStore

if TYPE_CHECKING:
    from kept.models.base import ChatModel
    from kept.server.live import LiveIndex, LiveState
    from kept.server.web.chat_screen import WebChat

_LONG_SYNC = 20
"""Files from which the progress of a sync is shown."""


@dataclass
class Site:
    """Everything that the pages of one agent need. Safe to share between threads."""

    loaded: LoadedConfig
    memory: Memory
    sessions: SessionStore
    live: LiveIndex | None = None
    is_stopping: Callable[[], bool] = lambda: False
    """Returns whether the server is about to stop. Streams end then, and do not delay it."""
    model: ChatModel | None = None
    """Answers in the chat instead of the configured one."""

    def __post_init__(self) -> None:
        self.config = self.memory.config

    @cached_property
    def chat(self) -> WebChat:
        """Conversations with the agent. Only for the event loop of the server."""
        from kept.server.web.chat_screen import WebChat

        return WebChat(self, self.model)

    async def close_chat(self) -> None:
        """Stop answers that are being written. To be called in the event loop."""
        if "chat" in vars(self):
            await self.chat.close()

    @property
    def author(self) -> Author:
        """The author of changes that a person makes on a page."""
        return Author(self.config.agent_id, tool="kept web")

    def indexing(self) -> LiveState | None:
        """Return the progress of the running sync if it is a long one, or None."""
        state = self.live.state() if self.live else None
        return state if state and state.syncing and state.total >= _LONG_SYNC else None


NOTICE_COOKIE = "kept-notice"
_MAX_NOTICE = 300
_NOBODY = Grant("", "", frozenset())


@dataclass
class Visit:
    """One request. ``form`` has the fields of a form whose token was checked; it is empty for other requests."""

    site: Site
    renderer: Renderer
    request: Request
    form: Mapping[str, str]
    form_token: str
    screen: str = ""

    def __post_init__(self) -> None:
        self.query: Mapping[str, str] = self.request.query_params
        self.path: Mapping[str, str] = self.request.path_params
        self.grant: Grant = self.request.scope.get(GRANT, _NOBODY)

    @property
    def memory(self) -> Memory:
        return self.site.memory

    def require_change(self, path: str) -> None:
        """Raise ScopeMissing if the note at a path instructs agents, and the visitor may not change such a note."""
        if is_instruction(self.memory.workspace, path):
            self.grant.require("change instructions")

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """Return a number of the query, or the default if it is none. It is moved into the range."""
        text = self.query.get(name, "")
        is_number = text.isascii() and text.isdigit() and len(text) < 12
        return max(least, min(int(text), most)) if is_number else default

    @property
    def text(self) -> str:
        """The field of the form with that name, with line ends as we write them."""
        return self.form.get("text", "").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def page(self) -> int:
        return self.number("page", 1, least=1)

    def back(self, default: str) -> str:
        """Return the page of ours that the form names in ``back``, or the default."""
        url = self.form.get("back", "")
        return url if url.startswith("/") and not url.startswith(("//", "/\\")) else default

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        notice = unquote(self.request.cookies.get(NOTICE_COOKIE, ""))[:_MAX_NOTICE]
        text = self.renderer(
            template,
            **values,
            agent=self.site.config.agent_id,
            form_token=self.form_token,
            current_screen=self.screen,
            indexing=self.site.indexing(),
            review_count=self.memory.review.count(),
            notice=notice,
            page=self.page,
            url=self.request.url.replace(scheme="", netloc=""),
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
