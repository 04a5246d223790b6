"""Tokens that `kept token` creates: hashed, with scopes, until they end or are revoked.

A secret has 256 random bits, so its plain SHA-256 cannot be reversed, and needs no salt. Only the hash is stored, in
`tokens.json` of a home. A server looks for a change of it at every request, so a revoked token is refused at once.
"""

from __future__ import annotations

import datetime as dt
import hmac
import re
import secrets
from dataclasses import replace

from kept.base.clock import Clock, utc_now
from kept.base.digest import digest_bytes
from kept.base.grants import OF_A_PERSON, Grant, TokenScope
from kept.base.net.serving import RateLimiter
from kept.base.values import frozen
from kept.errors import KeptError, NotFound, UsageError
from kept.storage.contract import Storage
from kept.storage.record_store import Book

TOKENS_FILE = "tokens.json"
PREFIX = "kept_"
_SECRET_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_SENT = 200
"""Bytes of the longest token that is compared."""


@frozen
class AccessToken:
    """A token, without its secret. All times are in UTC."""

    id: str
    name: str
    digest: str
    """SHA-256 of the token, in hexadecimal digits."""
    scopes: tuple[TokenScope, ...]
    created: dt.datetime
    # Without defaults: a record that lost a limit is none.
    agent: str | None
    person: str | None
    expires: dt.datetime | None
    revoked: dt.datetime | None

    def check(self) -> None:
        """Raise ValueError for a token that `make_token` would not make."""
        if not _NAME.fullmatch(self.name) or not self.id or not self.scopes or "" in (self.agent, self.person):
            raise ValueError("not a token")

    def state(self, now: dt.datetime) -> str:
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"

    @property
    def grant(self) -> Grant:
        return Grant(self.id, self.name, frozenset(self.scopes), self.agent, self.person)


@frozen
class TokenBook:
    tokens: tuple[AccessToken, ...] = ()

    def get(self, reference: str) -> AccessToken:
        """Return the token with this id, or the newest with this name. Raise NotFound."""
        for token in reversed(self.tokens):
            if reference in (token.id, token.name):
                return token
        raise NotFound(f"There is no token '{reference[:64]}'.", hint="'kept token list' shows them.")

    def find_secret(self, sent: bytes) -> AccessToken | None:
        """Return the token with this secret. Takes equally long whichever it is: every token is compared."""
        digest = digest_bytes(sent)
        matches = [token for token in self.tokens if hmac.compare_digest(token.digest, digest)]
        return matches[-1] if matches else None

    def with_token(self, token: AccessToken, now: dt.datetime) -> TokenBook:
        """Return the book with another token. Raise UsageError if an active one has its name."""
        if any(known.name == token.name and known.state(now) == "active" for known in self.tokens):
            hint = f"Choose another name, or run 'kept token revoke {token.name}' first."
            raise UsageError(f"There is a token '{token.name}' already.", hint=hint)
        return TokenBook((*self.tokens, token))

    def revoke(self, reference: str, now: dt.datetime) -> TokenBook:
        token = self.get(reference)
        revoked = token if token.revoked else replace(token, revoked=now)
        return TokenBook(tuple(revoked if known.id == token.id else known for known in self.tokens))


def make_token(
    name: str,
    scopes: tuple[TokenScope, ...],
    now: dt.datetime,
    *,
    agent: str | None = None,
    person: str | None = None,
    expires: dt.datetime | None = None,
) -> tuple[AccessToken, str]:
    """Return a new token and its secret. Raise UsageError if they cannot be had together."""
    if not _NAME.fullmatch(name):
        hint = "Use up to 64 letters, digits, '.', '_' and '-', such as ci-runner."
        raise UsageError(f"'{name[:64]}' cannot be the name of a token.", hint=hint)
    wrong = [scope for scope in scopes if person is not None and scope not in OF_A_PERSON]
    if wrong:
        hint = "Leave out the person, or the scope."
        raise UsageError(f"A token for one person cannot have the scope '{wrong[0]}'.", hint=hint)
    if expires is not None and expires <= now:
        raise UsageError("The token would have expired already.", hint="Name a time that is to come, such as 30d.")
    secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    digest = digest_bytes(secret.encode())
    token = AccessToken(
        id=secrets.token_hex(4),
        name=name,
        digest=digest,
        scopes=tuple(dict.fromkeys(scopes)),
        created=now,
        agent=agent,
        person=person,
        expires=expires,
        revoked=None,
    )
    return token, secret


def token_book(home: Storage) -> Book[TokenBook]:
    """Return the tokens of a home. A token that cannot be read lets nobody in."""
    return Book(home, TOKENS_FILE, TokenBook)


class KnownTokens:
    """The tokens of a home as they are now, and how often each may be used. Safe to share between threads."""

    def __init__(self, home: Storage, clock: Clock, limiter: RateLimiter, *, always: bool = False) -> None:
        """``always`` is True if nobody is served without a token, even if there is none."""
        self._book = token_book(home)
        self._clock = clock
        self._limiter = limiter
        self._always = always
        self._existed = False

    @property
    def is_required(self) -> bool:
        """True if nobody is served without a token. So it is once there is a book of tokens: if it goes away, nobody is
        let in instead of everybody."""
        self._read()
        return self._always or self._existed

    def find(self, sent: bytes) -> Grant | None:
        """Return what the token with this secret allows, or None if it is not an active one."""
        return self._active_grant(self._read().find_secret(sent) if len(sent) <= _MAX_SENT else None)

    def find_by_id(self, token_id: str) -> Grant | None:
        """Return what the token with this id allows, or None if it is not an active one."""
        return self._active_grant(next((token for token in self._read().tokens if token.id == token_id), None))

    def explain_refusal(self, sent: bytes) -> str:
        """Return why this lets nobody in. Only who has the secret of a token is told about it."""
        token = self._read().find_secret(sent) if len(sent) <= _MAX_SENT else None
        if token is None:
            return "Send the token: 'Authorization: Bearer TOKEN'."
        if token.revoked is not None:
            return f"The token '{token.name}' was revoked on {token.revoked:%Y-%m-%d}. Ask for another one."
        return f"The token '{token.name}' expired on {token.expires:%Y-%m-%d}. Ask for another one."

    def _active_grant(self, token: AccessToken | None) -> Grant | None:
        return token.grant if token is not None and token.state(utc_now(self._clock)) == "active" else None

    def wait_s(self, grant: Grant) -> float:
        """Count a request. Return how long its sender has to wait, or 0 if it may go on."""
        return self._limiter.take(grant.token_id or grant.name)

    def count_active(self) -> int:
        now = utc_now(self._clock)
        return sum(token.state(now) == "active" for token in self._read().tokens)

    def _read(self) -> TokenBook:
        """Return the tokens. None of them, if the document cannot be read."""
        try:
            self._existed = self._existed or self._book.exists()
            return self._book.read()
        except KeptError:
            self._existed = True
            return TokenBook()
