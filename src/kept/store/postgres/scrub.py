"""Remove what the indexes of a team no longer need from the database.

PostgreSQL keeps the bytes of deleted rows in its tables until they are rewritten. After `scrub_indexes`, the tables of
the index have the rows that are live and nothing else. The server's log of writes and its backups are not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kept.errors import KeptError
from kept.postgres.database import Database
from kept.postgres.table_rewrite import rewrite_tables
from kept.store.postgres.generation import TABLES
from kept.store.postgres.index import PostgresIndex

_REWRITTEN = (*TABLES, "embedding_cache")
_CHUNKS_AT_ONCE = 1_000


def scrub_indexes(
    database: Database,
    *,
    synced: str | None,
    stale: Iterable[tuple[str, str]],
    matches: Callable[[str], bool],
    wait_s: float,
) -> tuple[int, tuple[str, ...]]:
    """Rewrite the indexes of all workspaces of a team without deleted text. Return how many there are, and why some
    still have it.

    ``stale`` are files, by source and path, that leave an index until the next sync reads them again; so do files with
    a chunk that ``matches``. The index of the workspace ``synced`` has neither any more.
    """
    with database.statement() as connection:
        names = [str(name) for (name,) in connection.execute("SELECT name FROM workspaces ORDER BY name")]
    problems: list[str] = []
    for name in names:
        try:
            index = PostgresIndex(database, name)
            with index.indexing(wait_s=wait_s):
                index.drop_leftovers()
                with index.writing():
                    if name != synced:
                        index.live.remove_files(sorted({*stale, *_matching_files(index, matches)}))
                    index.live.purge()
        except KeptError as exc:  # the others are scrubbed all the same
            problems.append(exc.message)
    with database.writing(timeout_s=600.0) as connection:
        connection.execute(
            "DELETE FROM embedding_cache e WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.embed_hash = e.hash)"
        )
    unreached = len(problems)
    problems += rewrite_tables(database, _REWRITTEN)
    return len(names) - unreached, tuple(problems)


def _matching_files(index: PostgresIndex, matches: Callable[[str], bool]) -> set[tuple[str, str]]:
    files: set[tuple[str, str]] = set()
    after = 0
    query = (
        "SELECT row, source, path, heading, text FROM chunks WHERE generation = %s AND row > %s ORDER BY row LIMIT %s"
    )
    while rows := index.live.session.fetch(query, [index.live.number, after, _CHUNKS_AT_ONCE]):
        after = rows[-1][0]
        for _, source, path, heading, text in rows:
            if (source, path) not in files and matches(f"{heading.decode()}\n{text.decode()}"):
                files.add((source, path))
    return files
