"""Access to the pages: one-time links, cookies, tokens, and what protects forms against forgery.

Everything is signed with a key of the agent (``web.key``), so a tab survives a restart of the server, and a second
`kept web` can make a link for the server that runs already.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from threading import Lock

from kept.base.clock import Clock
from kept.base.grants import Grant
from kept.base.net.serving import Scope, TokenGate

LINK_MINUTES = 15
COOKIE_DAYS = 30
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_BY_LINK = ""
"""What a cookie has in the place of the id of a token, if it was got by a one-time link."""


class WebAccess:
    """Makes and checks everything that proves who a browser is. Safe to share between threads."""

    def __init__(self, key: bytes, clock: Clock, *, gate: TokenGate | None = None, always_links: bool = True) -> None:
        """``gate`` has tokens that open the pages. Unless ``always_links``, one-time links do so only as long as nobody
        needs a token."""
        self._key = key
        self._clock = clock
        self._gate = gate
        self._always_links = always_links
        self._started_ms = self._now_ms()
        self._used: set[str] = set()
        self._lock = Lock()

    @property
    def cookie_name(self) -> str:
        """Name of the cookie of this agent's pages, the same at whichever port."""
        return f"kept-{hmac.new(self._key, b'cookie', hashlib.sha256).hexdigest()[:12]}"

    @property
    def has_tokens(self) -> bool:
        return self._gate is not None and self._gate.is_required

    @property
    def takes_links(self) -> bool:
        return self._always_links or not self.has_tokens

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
        with self._lock:
            if body in self._used:
                return False
            self._used.add(body)
        return True

    # tokens

    def find_grant(self, token: str) -> Grant | None:
        """Return what a token allows, or None."""
        return self._gate.find(token.strip().encode("utf-8", "replace")) if self._gate is not None else None

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
        return self._gate.find_by_id(holder) if self._gate is not None else None

    def cookie_in(self, scope: Scope) -> str:
        """Return the cookie of these pages that a request sends, or an empty text."""
        from starlette.requests import Request

        return Request(scope).cookies.get(self.cookie_name, "")

    def wait_s(self, grant: Grant) -> float:
        """Count a request. Return how long its sender has to wait, or 0."""
        return self._gate.wait_s(grant) if self._gate is not None else 0.0

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
