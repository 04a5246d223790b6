"""Opens the database that the settings name. All parts of a process share its connections."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kept.config.search_settings import StoreSettings
from kept.errors import ConfigError, StoreUnavailable
from kept.forking import DatabaseLock

if TYPE_CHECKING:
    from kept.postgres.database import Database

_MAX_URL_BYTES = 10_000
_lock = DatabaseLock()
_opened: dict[tuple[str, str], Database] = {}


def open_database(settings: StoreSettings) -> Database:
    """Return the team's database. It connects on first use, and stays open until the process ends.

    Raise ConfigError if the settings name none, and StoreUnavailable if the libraries for it are not installed.
    """
    if not settings.is_shared:
        raise ConfigError(
            "memory_search.store.driver is sqlite: this machine shares nothing with others.",
            hint="Set it to postgres, and memory_search.store.url to the address of the database.",
        )
    url = _read_url(settings)
    try:
        from kept.postgres.database import Database
        from kept.postgres.database_url import check_url
    except ImportError as exc:
        raise StoreUnavailable(
            f"memory_search.store.driver postgres needs the package '{exc.name}'.",
            hint="Install it: pip install 'kept[postgres]'",
        ) from exc
    check_url(url)
    with _lock:
        key = (url, settings.schema)
        if key not in _opened:
            _opened[key] = Database(url, settings.schema, max_connections=settings.max_connections)
        return _opened[key]


def close_databases() -> None:
    """Close what `open_database` opened. Whoever still holds one gets UsedAfterClose."""
    with _lock:
        databases = [*_opened.values()]
        _opened.clear()
    for database in databases:
        database.close()


def _read_url(settings: StoreSettings) -> str:
    if settings.url:
        return settings.url
    if settings.url_file is None:
        raise ConfigError(
            "memory_search.store.driver is postgres, but there is no address of the database.",
            hint="Set KEPT_MEMORY_SEARCH__STORE__URL, or memory_search.store.url_file to a file that has it.",
        )
    path = os.path.expanduser(settings.url_file)
    try:
        with open(path, encoding="utf-8") as file:
            url = file.read(_MAX_URL_BYTES).strip()
    except OSError as exc:
        raise ConfigError(f"memory_search.store.url_file: {path} cannot be read ({exc.strerror}).") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"memory_search.store.url_file: {path} is not a text file.") from None
    if not url:
        raise ConfigError(f"memory_search.store.url_file: {path} is empty.")
    return url
