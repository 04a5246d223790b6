"""Copies the index of a workspace between SQLite and the database of a team."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kept.errors import StoreUnavailable
from kept.store.index import Index, find_index_path, open_index
from kept.values import frozen

if TYPE_CHECKING:
    from kept.indexing.service import IndexService


@frozen
class IndexCopy:
    """A copy that was compared with its source."""

    source: str
    target: str
    chunks: int


def copy_index(service: IndexService, *, to_postgres: bool) -> IndexCopy:
    """Replace the index of the workspace in one store by that of the other. Raise StoreError if the two differ then.

    Raise StoreUnavailable if there is nothing to copy.
    """
    from kept.postgres.open_database import open_database

    service.require_usable()
    service.reopen()
    database = open_database(replace(service.settings.store, driver="postgres"))
    from kept.store.postgres.index import PostgresIndex
    from kept.store.postgres.index_copy import copy_to_postgres, copy_to_sqlite

    if to_postgres and not os.path.exists(_file_path(service)):
        raise StoreUnavailable(f"{_file_path(service)}: there is no index to copy.", hint="Run 'kept index' first.")
    shared = PostgresIndex(database, service.shared_name, service.limits.vectors)
    file = _open_file(service)
    try:
        if file.why_read_only and not to_postgres:
            raise file.why_read_only
        wait_s = service.limits.sync_wait_s
        if to_postgres:
            return IndexCopy(file.path, shared.path, copy_to_postgres(file, shared, wait_s=wait_s))
        if shared.stored_identity() is None and not shared.live.count_chunks():
            raise StoreUnavailable(f"{shared.path}: there is no index to copy.", hint="Run 'kept index' first.")
        return IndexCopy(shared.path, file.path, copy_to_sqlite(shared, file, wait_s=wait_s))
    finally:
        file.close()


def _file_path(service: IndexService) -> str:
    named = service.settings.store.path
    if named:
        return os.path.abspath(os.path.expanduser(named))
    return find_index_path(service.config.paths, service.workspace.root)


def _open_file(service: IndexService) -> Index:
    if service.settings.store.path:
        return Index(_file_path(service), service.limits.vectors)
    return open_index(service.config.paths, service.workspace.root, service.limits.vectors)
