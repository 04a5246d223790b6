"""Browser protection: policy headers on every answer, and checks of every request.

`Guard` has checked the Host before. Another page on this machine, on another port, counts as the same site for
cookies; so `Sec-Fetch-Site` has to say that a request is from our own pages or from the person, and a change needs an
Origin that is exactly ours.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import PlainTextResponse

from kept.base.net.serving import GRANT, App, Receive, Scope, Send, describe_refusal, refuse
from kept.server.web.web_access import WebAccess

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


class BrowserGuard:
    """ASGI application that refuses requests of other sites, and of browsers without a cookie of ours.

    ``scope["kept.cookie"]`` has the cookie afterwards, or "" on a path that needs none, and ``scope[GRANT]`` what it
    allows.
    """

    def __init__(self, app: App, access: WebAccess, *, sign_in: App) -> None:
        self.app = app
        self.access = access
        self.sign_in = sign_in
        """Answers requests that need a cookie and have none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self._find_fault(scope, headers):
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send)
            return
        cookie = self.access.cookie_in(scope)
        grant = self.access.grant_of(cookie) if cookie else None
        scope["kept.cookie"] = cookie if grant else ""
        if grant is not None:
            scope[GRANT] = grant
            if wait_s := self.access.wait_s(grant):
                message = "These pages are asked for too often. Try again in a moment."
                await refuse(send, 429, describe_refusal(scope["path"], 429, "rate_limited", message), wait_s=wait_s)
                return
        if grant is not None or scope["path"] in _OPEN_PATHS or scope["path"].startswith(_ASSETS):
            await self.app(scope, receive, send)
        else:
            await self.sign_in(scope, receive, send)

    def _find_fault(self, scope: Scope, headers: dict[bytes, str]) -> str | None:
        """Return why a request is refused, independent of who sends it, or None."""
        is_change = scope["method"] not in ("GET", "HEAD")
        origin = headers.get(b"origin")
        if (origin is not None or is_change) and not is_own_origin(origin, headers.get(b"host", "")):
            return "Requests of other pages are refused."
        is_foreign = headers.get(b"sec-fetch-site", "none") not in ("same-origin", "none")
        if is_foreign and (is_change or scope["path"] not in FROM_ANYWHERE):
            return "Links on other pages do not lead here. Enter the address in the browser, or run 'kept web'."
        return None


def is_own_origin(origin: str | None, host: str) -> bool:
    """Return whether an origin is the server itself, by its name and port; a proxy in front of it may add TLS."""
    scheme, _, authority = (origin or "").partition("://")
    return scheme in ("http", "https") and bool(authority) and authority.lower() == host.strip().lower()
