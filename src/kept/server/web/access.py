"""Access to the pages: one-time links, cookies and tokens, and the checks of every request of a browser.

Links, cookies and forms are signed with a key of the agent (``web.key``), so a tab survives a restart of the server,
and a second `kept web` can make a link for the server that runs already.

`Guard` has checked the Host before. Another page on this machine, on another port, counts as the same site for
cookies; so `Sec-Fetch-Site` has to say that a request is from our own pages or from the person, and a change needs an
Origin that is exactly ours.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from kept.base.clock import Clock
from kept.base.grants import Grant
from kept.base.net.serving import GRANT, ROUTE, App, Receive, Scope, Send, TokenGate, headers_of, refuse
from kept.errors import UsageError

if TYPE_CHECKING:
    from kept.server.web.page_templates import Renderer

LINK_MINUTES = 15
COOKIE_DAYS = 30
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_BY_LINK = ""
"""Stands in a cookie for the id of a token if it was got by a one-time link."""


class WebAccess:
    """Makes and checks everything that proves who a browser is. Links are taken in the event loop only."""

    def __init__(self, key: bytes, clock: Clock, gate: TokenGate, *, always_links: bool = True) -> None:
        """``gate`` has tokens that open the pages. Unless ``always_links``, one-time links do so only as long as nobody
        needs a token."""
        self._key = key
        self._clock = clock
        self.gate = gate
        self._always_links = always_links
        self._started_ms = self._now_ms()
        self._used: set[str] = set()

    @property
    def cookie_name(self) -> str:
        """Name of the cookie of this agent's pages, the same at whichever port."""
        return f"kept-{hmac.new(self._key, b'cookie', hashlib.sha256).hexdigest()[:12]}"

    @property
    def takes_links(self) -> bool:
        return self._always_links or not self.gate.is_required

    # one-time links

    def make_link_key(self) -> str:
        """Return a key that opens the pages once, within a quarter of an hour."""
        return self._sealed("link", f"{self._now_ms():x}.{secrets.token_urlsafe(12)}")

    def take_link_key(self, key: str) -> bool:
        """Return whether a key opens the pages, and use it up.

        A key from before this server started may have been used with the server before it, so it is not accepted.
        """
        body = self._unsealed("link", key)
        if body is None or not self.takes_links:
            return False
        issued_ms = int(body.partition(".")[0], 16)
        expires_ms = issued_ms + LINK_MINUTES * _MINUTE_MS
        if not self._started_ms <= issued_ms <= self._now_ms() < expires_ms:
            return False
        is_new = body not in self._used
        self._used.add(body)
        return is_new

    # cookies and forms

    def make_cookie(self, grant: Grant | None = None) -> str:
        """Return a cookie for who has a token, or has followed a one-time link."""
        expires_ms = self._now_ms() + COOKIE_DAYS * _DAY_MS
        holder = grant.token_id if grant else _BY_LINK
        return self._sealed("cookie", f"{expires_ms:x}.{secrets.token_urlsafe(12)}.{holder}")

    def grant_of(self, cookie: str) -> Grant | None:
        """Return what a cookie allows now, or None. It ends with the token that it was got by."""
        body = self._unsealed("cookie", cookie)
        if body is None:
            return None
        expires, _, rest = body.partition(".")
        if self._now_ms() >= int(expires, 16):
            return None
        holder = rest.partition(".")[2]
        if holder == _BY_LINK:
            return Grant("", "kept web", frozenset({"admin"})) if self.takes_links else None
        return self.gate.find_by_id(holder)

    def cookie_in(self, scope: Scope) -> str:
        """Return the cookie of these pages that a request sends, or an empty text."""
        return Request(scope).cookies.get(self.cookie_name, "")

    def form_token(self, cookie: str) -> str:
        """Return the token that every form of this browser has to send back."""
        return self._sign("form", cookie)

    def knows_form_token(self, cookie: str, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.form_token(cookie).encode())

    # recognising another server of this agent

    def answer(self, challenge: str) -> str:
        """Return the proof that this process has the key of the agent and takes its links, or an empty text."""
        return self._sign("hello", challenge) if self.takes_links else ""

    # signatures

    def _sealed(self, purpose: str, body: str) -> str:
        return f"{body}.{self._sign(purpose, body)}"

    def _unsealed(self, purpose: str, sealed: str) -> str | None:
        body, _, signature = sealed.rpartition(".")
        is_ours = hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(purpose, body).encode())
        return body if is_ours else None

    def _sign(self, purpose: str, body: str) -> str:
        message = f"{purpose}\0{body}".encode("utf-8", "replace")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _now_ms(self) -> int:
        return self._clock.time_ns() // 1_000_000


# guards

_OPEN_PATHS = ("/open", "/login", "/hello")
"""Paths that need no cookie: the one-time link, the form for the token, and the probe of another process."""
_ASSETS = "/static/"
FROM_ANYWHERE = ("/open",)
"""Paths that a link on any page may lead to."""
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "media-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # "no-referrer" would also hide the origin of our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}


class PolicyHeaders:
    """ASGI application that adds the policy headers to every answer of another, refusals included."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.decode("latin-1").lower() for name, _ in message.get("headers", ())}
                caching = "no-cache" if scope["path"].startswith(_ASSETS) else "no-store"
                added = {**_HEADERS, "cache-control": caching}
                more = [(name.encode(), value.encode()) for name, value in added.items() if name not in own]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


@dataclass
class BrowserGuard:
    """ASGI application that refuses requests of other sites, and of browsers without a cookie of ours.

    ``scope["kept.cookie"]`` has the cookie afterwards, or "" on a path that needs none, and ``scope[GRANT]`` what it
    allows.
    """

    app: App
    access: WebAccess
    sign_in: App
    """Answers requests that need a cookie and have none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = headers_of(scope)
        if refusal := self._find_fault(scope, headers):
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send)
            return
        cookie = self.access.cookie_in(scope)
        grant = self.access.grant_of(cookie) if cookie else None
        scope["kept.cookie"] = cookie if grant else ""
        if grant is not None:
            scope[GRANT] = grant
            if wait_s := self.access.gate.wait_s(grant):
                message = "These pages are asked for too often. Try again in a moment."
                await refuse(send, 429, "rate_limited", message, wait_s)
                return
        if grant is not None or scope["path"] in _OPEN_PATHS or scope["path"].startswith(_ASSETS):
            await self.app(scope, receive, send)
        else:
            await self.sign_in(scope, receive, send)

    def _find_fault(self, scope: Scope, headers: dict[bytes, str]) -> str | None:
        """Return why a request is refused, independent of who sends it, or None."""
        is_change = scope["method"] not in ("GET", "HEAD")
        origin = headers.get(b"origin")
        # The server itself, by its name and port; a proxy in front of it may add TLS.
        scheme, _, authority = (origin or "").lower().partition("://")
        is_own = (
            scheme in ("http", "https") and bool(authority) and authority == headers.get(b"host", "").strip().lower()
        )
        if (origin is not None or is_change) and not is_own:
            return "Requests of other pages are refused."
        is_foreign = headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none")
        if is_foreign and (is_change or scope["path"] not in FROM_ANYWHERE):
            return "Links on other pages do not lead here. Enter the address in the browser, or run 'kept web'."
        return None


# signing in: the one-time link of `kept web`, or a token

_MOST_BYTES = 4_096
_MOST_CHALLENGE = 100
_MOST_FIELDS = 2_000


async def read_form(request: Request, most_bytes: int) -> dict[str, str]:
    """Return the fields of a form. Raise UsageError if it is none, or too long."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise UsageError("A change has to be sent as a form.", hint="Use the pages.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise UsageError(f"The form has more than {most_bytes:,} bytes.", hint="Shorten the text.")
    return await anyio.to_thread.run_sync(_parse_form, bytes(body))


def _parse_form(body: bytes) -> dict[str, str]:
    try:
        text = body.decode("ascii")
        return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS))
    except ValueError as exc:
        raise UsageError("The form cannot be read.", hint="Send it as UTF-8.") from exc


class SignIn:
    """Pages for browsers without a cookie. As an ASGI application, it answers whatever they ask for."""

    def __init__(self, render: Renderer, access: WebAccess, *, agent_id: str) -> None:
        self._render = render
        self._access = access
        self._agent_id = agent_id
        self.routes = [
            Route("/open", self._open),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/hello", self._hello),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._show("none"))(scope, receive, send)

    async def _show(self, problem: str, status: int = 401) -> Response:
        access = self._access
        values = {"problem": problem, "has_token": access.gate.is_required, "takes_links": access.takes_links}
        return await self._page("sign_in.html", status, agent=self._agent_id, **values)

    async def _page(self, template: str, status: int, **values: Any) -> Response:
        return HTMLResponse(await anyio.to_thread.run_sync(lambda: self._render(template, **values)), status)

    async def _open(self, request: Request) -> Response:
        """Exchange a one-time link for a cookie.

        The answer is a page that leads on, rather than a redirect: after a link on another page, a browser would
        not send the cookie with the redirect.
        """
        request.scope[ROUTE] = "/open"
        if not self._access.take_link_key(request.query_params.get("key", "")):
            if request.scope["kept.cookie"]:
                return RedirectResponse("/", 303)
            return await self._show("used")
        return self._signed_in(request, await self._page("opening.html", 200))

    async def _log_in(self, request: Request) -> Response:
        request.scope[ROUTE] = "/login"
        try:
            form = await read_form(request, _MOST_BYTES)
        except UsageError:
            return await self._show("wrong")
        except ClientDisconnect:
            return Response(status_code=400)  # the browser is gone, or others needed its connection
        grant = self._access.gate.find(form.get("token", "").strip().encode("utf-8", "replace"))
        if grant is None:
            return await self._show("wrong")
        if grant.person is not None or not grant.reaches(self._agent_id):
            return await self._show("other", 403)
        return self._signed_in(request, RedirectResponse("/", 303), grant)

    async def _hello(self, request: Request) -> Response:
        """Prove to another `kept web` that this server is for the same agent."""
        request.scope[ROUTE] = "/hello"
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
