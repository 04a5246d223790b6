"""Opens the tokens that the settings name: those of the home, or those of the team."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kept.access_tokens.token_file import TOKENS_FILE, TokenBookFile, TokenWatch
from kept.config import Config
from kept.damaged_records import Fault
from kept.grants import Grant

if TYPE_CHECKING:
    from kept.access_tokens.token_book import TokenBook


class StoredTokens(Protocol):
    """Tokens that `kept token` changes."""

    faults: list[Fault]

    def read(self) -> TokenBook: ...

    def change(self, change: Callable[[TokenBook], TokenBook]) -> TokenBook: ...


class WatchedTokens(Protocol):
    """Tokens as a server sees them. Its methods raise StoreError while they cannot tell."""

    @property
    def is_in_use(self) -> bool: ...

    def book(self) -> TokenBook: ...

    def find(self, sent: bytes, now: dt.datetime) -> Grant | None: ...

    def find_by_id(self, token_id: str, now: dt.datetime) -> Grant | None: ...

    def refresh(self) -> None:
        """Look for changes that this process may not have heard of yet."""
        ...

    def close(self) -> None: ...


def open_tokens(config: Config) -> StoredTokens:
    if not config.memory_search.store.is_shared:
        return TokenBookFile(config.home)
    from kept.access_tokens.shared_tokens import SharedTokenBook
    from kept.postgres.open_database import open_database

    return SharedTokenBook(open_database(config.memory_search.store))


def watch_tokens(config: Config) -> WatchedTokens:
    if not config.memory_search.store.is_shared:
        return TokenWatch(config.home)
    from kept.access_tokens.shared_tokens import SharedTokenWatch
    from kept.postgres.open_database import open_database

    return SharedTokenWatch(open_database(config.memory_search.store), grace_s=config.gateway.serve.token_grace_s)


def has_unused_file(config: Config) -> bool:
    """Return whether the home has a file of tokens that lets nobody in, since the team has its own."""
    return config.memory_search.store.is_shared and os.path.exists(os.path.join(config.home, TOKENS_FILE))
