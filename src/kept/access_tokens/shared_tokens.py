"""Tokens in the database of a team: created or revoked on one machine, they are so on all.

A machine hears of changes (NOTIFY), and looks every second whether it missed one. While the database is away, it
honours the tokens that it knows for a limited time, and refuses to say anything about others.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kept.access_tokens.token_book import AccessToken, TokenBook, parse_token
from kept.book_file import format_moment
from kept.damaged_records import Fault
from kept.errors import StoreUnavailable, StoreUnreachable
from kept.grants import Grant
from kept.postgres.leases import process_name
from kept.postgres.notifications import Listener, notify

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

TOPIC = "tokens"
_COLUMNS = ("id", "name", "digest", "scopes", "agent", "person", "workspace", "created", "expires", "revoked")
_MOMENTS = ("created", "expires", "revoked")
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM access_tokens ORDER BY position"
_UPSERT = (
    f"INSERT INTO access_tokens ({', '.join(_COLUMNS)}) VALUES ({', '.join(f'%({name})s' for name in _COLUMNS)})"
    f" ON CONFLICT (id) DO UPDATE SET revoked = excluded.revoked"
)


class SharedTokenBook:
    """Tokens of a team, as `TokenBookFile` has them in a file."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.faults: list[Fault] = []
        """What the last reading left out, and why."""

    def read(self) -> TokenBook:
        return self.read_with_version()[0]

    def read_with_version(self) -> tuple[TokenBook, int]:
        with self.database.reading() as connection:
            return self._read(connection), read_version(connection)

    def change(self, change: Callable[[TokenBook], TokenBook]) -> TokenBook:
        """Change the tokens and return them. Other machines that change them wait."""
        with self.database.writing() as connection:
            _require_rights(connection)
            connection.execute("UPDATE token_version SET number = number + 1")
            before = self._read(connection)
            after = change(before)
            remaining = {token.id for token in after.tokens}
            dropped = [token.id for token in before.tokens if token.id not in remaining]
            connection.execute("DELETE FROM access_tokens WHERE id = ANY(%s)", [dropped])
            for token in after.tokens:
                if token not in before.tokens:
                    connection.execute(_UPSERT, {name: getattr(token, name) for name in _COLUMNS} | _as_list(token))
            notify(connection, self.database.schema, TOPIC, by=process_name())
            return after

    def _read(self, connection: Connection) -> TokenBook:
        """Return the tokens. One that somebody has written there by hand, and wrongly, lets nobody in."""
        self.faults = []
        tokens = []
        for row in connection.execute(_SELECT).fetchall():
            fields: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
            try:
                tokens.append(parse_token(fields | {name: format_moment(fields[name]) for name in _MOMENTS}))
            except (TypeError, ValueError, OverflowError):
                self.faults.append(Fault("table access_tokens", None, f"the token {fields['id']!r} cannot be read"))
        return TokenBook(tuple(tokens))


def _as_list(token: AccessToken) -> dict[str, Any]:
    return {"scopes": [*token.scopes]}


def _require_rights(connection: Connection) -> None:
    row = connection.execute("SELECT has_table_privilege('access_tokens', 'INSERT, UPDATE, DELETE')").fetchone()
    if row != (True,):
        raise StoreUnavailable(
            "This machine cannot change tokens: its role may only read the team's database.",
            hint="Run it on a machine that may write, or ask for 'kept store grant ROLE'.",
        )


def read_version(connection: Connection) -> int:
    row = connection.execute("SELECT number FROM token_version").fetchone()
    return int(row[0]) if row else 0


class SharedTokenWatch:
    """The tokens of a team as this machine knows them. Safe to share between threads."""

    def __init__(self, database: Database, *, grace_s: float) -> None:
        """``grace_s`` is how long known tokens are honoured while the database is away."""
        self._database = database
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._known: tuple[TokenBook, int] | None = None
        """The tokens, and the number of their last change."""
        self._confirmed_s = float("-inf")
        """When they were last known to be right."""
        self._listener = Listener(database, TOPIC, self.refresh, me="", look=self._look)

    def close(self) -> None:
        self._listener.stop()

    @property
    def is_in_use(self) -> bool:
        """True once there is a token. Raise StoreUnreachable if that is not known."""
        return bool(self.book().tokens)

    def book(self) -> TokenBook:
        """Return the tokens. Raise StoreUnreachable if the database has been away for too long to trust them."""
        known = self._known
        if known is None or time.monotonic() - self._confirmed_s > self._grace_s:
            raise StoreUnreachable("The tokens cannot be checked: the database cannot be reached.", hint="Try later.")
        return known[0]

    def refresh(self) -> None:
        """Read the tokens again if they have changed. Raise StoreError if the database does not answer."""
        with self._database.statement() as connection:
            self._look(connection)

    def find(self, sent: bytes, now: dt.datetime) -> Grant | None:
        return self.book().find_grant(sent, now)

    def find_by_id(self, token_id: str, now: dt.datetime) -> Grant | None:
        return self.book().find_grant_by_id(token_id, now)

    def _look(self, connection: Connection) -> None:
        began_s = time.monotonic()
        version = read_version(connection)
        with self._lock:
            if self._known is None or self._known[1] != version:
                self._known = SharedTokenBook(self._database).read_with_version()
            self._confirmed_s = max(self._confirmed_s, began_s)
