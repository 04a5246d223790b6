"""Signing in at one machine of a team and going on at another: the key of cookies and forms, and used links, are in the
database."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kept.postgres.database import Database

_KEY_BYTES = 32


class TeamSignIn:
    """What the machines of a team share of the pages of an agent."""

    def __init__(self, database: Database, agent: str) -> None:
        self._database = database
        self._agent = agent

    def load_key(self) -> bytes:
        """Return the key of the team, and make one if there is none. Raise StoreError if it cannot be had."""
        query = "SELECT key FROM web_keys WHERE agent = %s"
        with self._database.reading() as connection:
            row = connection.execute(query, [self._agent]).fetchone()
        if row is None:
            with self._database.writing() as connection:
                connection.execute(
                    "INSERT INTO web_keys VALUES (%s, %s) ON CONFLICT DO NOTHING",
                    [self._agent, secrets.token_bytes(_KEY_BYTES)],
                )
                row = connection.execute(query, [self._agent]).fetchone()
        assert row is not None
        return bytes(row[0])

    def use_link(self, link: str, *, expires_ms: int) -> bool:
        """Use up a link. Return False if it was used, on whichever machine."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM used_links WHERE expires < now()")
            inserted = connection.execute(
                "INSERT INTO used_links VALUES (%s, %s, to_timestamp(%s) + interval '1 hour') ON CONFLICT DO NOTHING",
                [self._agent, link, expires_ms / 1000],
            )
            return inserted.rowcount == 1
