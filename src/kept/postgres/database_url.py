"""Checks the address of a database."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from kept.errors import ConfigError


def check_url(url: str) -> None:
    """Raise ConfigError if PostgreSQL cannot read an address. The message does not repeat it."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        raise ConfigError(
            "memory_search.store.url is not an address of a PostgreSQL database.",
            hint="It looks like postgresql://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require.",
        ) from None
