"""What the folder had when it last agreed with the rows, in a SQLite file in `.kept/copy` of the workspace.

It lies in the folder, so it is lost together with it: then everything is fetched again. Without it, files are compared
by their SHA-256, and nothing is lost either.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kept.durable import make_private_folder
from kept.errors import StoreUnavailable
from kept.file_lock import locked
from kept.team_files.file_tables import FilesHead
from kept.values import frozen
from kept.working_copy.synced_files import TICK_NS

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, version INTEGER, sha256 TEXT,
  size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS grown (path TEXT PRIMARY KEY, epoch INTEGER, size INTEGER, inode INTEGER) WITHOUT ROWID;
"""


@frozen
class CopiedFile:
    """A file as it was when it agreed with the rows. ``stamp`` is None if it has to be read to know."""

    version: int
    sha256: str | None
    """None if it was removed."""
    stamp: tuple[int, int, int, int] | None

    def is_same(self, state: os.stat_result | None) -> bool:
        """Return whether a file is certainly as it was."""
        if state is None:
            return self.sha256 is None
        return self.stamp is not None and self.stamp == stamp_of(state)


@frozen
class CopiedGrowth:
    """A growing file: how much of it was sent or received, and the inode that it had."""

    epoch: int
    size: int
    inode: int


def stamp_of(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def safe_stamp(state: os.stat_result | None, checked_ns: int) -> tuple[int, int, int, int] | None:
    """Return the stamp of a file that was read then, or None if it may change without a new time."""
    if state is None or max(state.st_mtime_ns, state.st_ctime_ns) >= checked_ns - TICK_NS:
        return None
    return stamp_of(state)


def folder_of_copy(root: str) -> str:
    """Return the folder of the state of a workspace."""
    return os.path.join(root, ".kept", "copy")


class CopyState:
    """The state of one folder. Whoever writes to it holds the lock of the copy."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(self.folder, "state.sqlite")
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def locked(self, wait_s: float) -> Iterator[None]:
        """Hold the lock of the copy: one process at a time sends and receives."""
        make_private_folder(self.folder)
        with locked(os.path.join(self.folder, "lock"), wait_s=wait_s, purpose="synchronising this workspace"):
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = self._connect()
            except sqlite3.DatabaseError:
                self.discard()
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        make_private_folder(self.folder)
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, timeout=10, check_same_thread=False)
            connection.execute("PRAGMA synchronous=OFF")  # what a power cut takes is compared again
            connection.execute("PRAGMA secure_delete=ON")  # the name of a note that was forgotten
            connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable(f"{self.path}: {exc}.", hint="Check free space and permissions.") from exc
        return connection

    def discard(self) -> None:
        """Delete a state that is damaged. The caller holds the lock of the copy."""
        self.close()
        for ending in ("", "-journal"):
            if os.path.lexists(self.path + ending):
                os.unlink(self.path + ending)

    @contextmanager
    def writing(self) -> Iterator[None]:
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    # the whole

    def head(self) -> FilesHead | None:
        """Return the state of the rows that the folder has, or None if it has none."""
        try:
            rows = dict(self._open().execute("SELECT key, value FROM meta").fetchall())
        except sqlite3.DatabaseError:
            return None  # damaged, or another process has been writing for long: whoever asks compares all files
        if not {"token", "seq", "erasures"} <= rows.keys():
            return None
        return FilesHead(str(rows["token"]), int(rows["seq"]), int(rows["erasures"]))

    def put_head(self, head: FilesHead) -> None:
        values = [("token", head.token), ("seq", head.seq), ("erasures", head.erasures)]
        with self.writing():
            self._open().executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)

    def noted_s(self) -> float:
        """Return when the database was last told what this folder has, in seconds since 1970."""
        row = self._open().execute("SELECT value FROM meta WHERE key = 'noted'").fetchone()
        return float(row[0]) if row else 0.0

    def put_noted(self, time_s: float) -> None:
        self._open().execute("INSERT OR REPLACE INTO meta VALUES ('noted', ?)", [time_s])

    def left(self) -> list[str]:
        """Return the files that could not be taken. They are tried again."""
        row = self._open().execute("SELECT value FROM meta WHERE key = 'left'").fetchone()
        return [str(path) for path in json.loads(row[0])] if row else []

    def put_left(self, paths: Iterable[str]) -> None:
        self._open().execute("INSERT OR REPLACE INTO meta VALUES ('left', ?)", [json.dumps(sorted(paths))])

    def clear(self) -> None:
        with self.writing():
            for table in ("meta", "files", "grown"):
                self._open().execute(f"DELETE FROM {table}")

    # files

    def files(self, paths: Sequence[str] | None = None) -> dict[str, CopiedFile]:
        """Return what is known of all files, or of some."""
        query = "SELECT path, version, sha256, size, mtime, ctime, inode FROM files"
        if paths is None:
            rows = self._open().execute(query).fetchall()
        else:
            rows = [
                row
                for path in dict.fromkeys(paths)
                for row in self._open().execute(f"{query} WHERE path = ?", [_encoded(path)])
            ]
        return {
            row[0]: CopiedFile(row[1], row[2], None if row[3] is None else (row[3], row[4], row[5], row[6]))
            for row in rows
        }

    def put_file(self, path: str, file: CopiedFile) -> None:
        stamp = file.stamp or (None, None, None, None)
        row = (_encoded(path), file.version, file.sha256, *stamp)
        self._open().execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def drop_removed(self) -> None:
        """Drop the names of removed files, since one may have been forgotten."""
        self._open().execute("DELETE FROM files WHERE sha256 IS NULL")

    # growing files

    def grown(self) -> dict[str, CopiedGrowth]:
        rows = self._open().execute("SELECT path, epoch, size, inode FROM grown").fetchall()
        return {row[0]: CopiedGrowth(row[1], row[2], row[3]) for row in rows}

    def put_grown(self, path: str, growth: CopiedGrowth) -> None:
        row = (path, growth.epoch, growth.size, growth.inode)
        self._open().execute("INSERT OR REPLACE INTO grown VALUES (?, ?, ?, ?)", row)


def _encoded(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
