"""Tokens in `tokens.json` of a home. Every process looks at the file for every request, so a revoked token is refused
at once."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time

from kept.access_tokens.token_book import TokenBook, dump_tokens, parse_tokens
from kept.book_file import BookFile
from kept.errors import KeptError
from kept.grants import Grant

TOKENS_FILE = "tokens.json"
_SETTLED_NS = 100_000_000
"""A file that changed less than this ago may change again without another time stamp, and is read each time."""


class TokenBookFile(BookFile[TokenBook]):
    """File of the tokens of a home."""

    def __init__(self, home: str) -> None:
        super().__init__(
            os.path.join(home, TOKENS_FILE),
            empty=TokenBook,
            parse=parse_tokens,
            dump=dump_tokens,
            purpose="changing the tokens",
        )


class TokenWatch:
    """The tokens of a home as they are at this moment. Safe to share between threads."""

    def __init__(self, home: str) -> None:
        self._file = TokenBookFile(home)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._book = TokenBook()
        self._existed = False

    @property
    def is_in_use(self) -> bool:
        """True once there is a file of tokens. If it goes away, nobody is let in instead of everybody."""
        self.book()
        return self._existed

    def book(self) -> TokenBook:
        """Return the tokens. None of them, if the file cannot be read."""
        with self._lock:
            try:
                state = os.stat(self._file.path)
            except FileNotFoundError:
                self._seen, self._book = None, TokenBook()
                return self._book
            except OSError:
                self._existed = True
                return TokenBook()
            self._existed = True
            seen = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if seen == self._seen:
                return self._book
            try:
                self._book = self._file.read()
            except KeptError:
                self._seen = None
                return TokenBook()
            self._seen = seen if time.time_ns() - state.st_ctime_ns > _SETTLED_NS else None
            return self._book

    def find(self, sent: bytes, now: dt.datetime) -> Grant | None:
        """Return what a token allows, or None if it is not an active one."""
        return self.book().find_grant(sent, now)

    def find_by_id(self, token_id: str, now: dt.datetime) -> Grant | None:
        """Return what the token with an id allows now, or None."""
        return self.book().find_grant_by_id(token_id, now)

    def refresh(self) -> None:
        """Do nothing: the file is looked at for every request."""

    def close(self) -> None:
        """Do nothing: no file stays open."""
