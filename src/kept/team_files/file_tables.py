"""The rows of a workspace's files. All SQL of this package is here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kept.postgres.leases import process_name
from kept.postgres.notifications import notify
from kept.values import frozen

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

GONE = -1
"""Size of a growing file that was removed."""
PIECE_BYTES = 4_000_000
_HASH_BYTES = 16
_FETCH_BYTES = 8_000_000
_FETCH_FILES = 200
_REMEMBER_DAYS = 7
"""After so long, earlier versions are no longer kept for a machine that does not ask."""
TABLES = ("files", "file_versions", "grown_files", "file_pieces")


@frozen
class FilesHead:
    """State of a workspace: its token, the number of its last change, and of its forgets."""

    token: str
    seq: int
    erasures: int


@frozen
class TeamFileRow:
    path: str
    version: int
    seq: int
    sha256: str | None
    """None if the file was removed."""
    size: int
    host: str


@frozen
class GrownRow:
    path: str
    epoch: int
    size: int
    seq: int
    host: str


@frozen
class SentFile:
    """A version to accept, if the file still has the version ``base``; 0 is a file that never was."""

    path: str
    base: int
    data: bytes | None


@frozen
class SentPiece:
    """What a growing file got since it had ``start`` bytes in an epoch. ``is_whole``: it begins a new epoch."""

    path: str
    epoch: int
    start: int
    data: bytes
    is_whole: bool = False
    is_gone: bool = False

    @property
    def next_epoch(self) -> int:
        return self.epoch + 1 if self.is_whole or self.is_gone else max(1, self.epoch)

    @property
    def next_size(self) -> int:
        return GONE if self.is_gone else len(self.data) if self.is_whole else self.start + len(self.data)


@frozen
class Acceptance:
    """Outcome of a commit: the files and pieces that were first, and those of which another machine was."""

    head: FilesHead
    accepted: tuple[str, ...]
    refused: tuple[str, ...]


class WrongCopy(Exception):
    """The folder is a copy of other rows: the database was replaced, or went back to an earlier state."""


class FileTables:
    """The files of one workspace in the database."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name

    @property
    def topic(self) -> str:
        return f"files {self.name}"

    # reading

    def head(self) -> FilesHead:
        """Return the state of the workspace. Create it if it is new."""
        with self.database.statement() as connection:
            row = connection.execute(
                "SELECT token, seq, erasures FROM file_workspaces WHERE name = %s", [self.name]
            ).fetchone()
        if row is None:
            with self.database.writing() as connection:
                connection.execute("INSERT INTO file_workspaces (name) VALUES (%s) ON CONFLICT DO NOTHING", [self.name])
            return self.head()
        return FilesHead(*row)

    def find_head(self) -> FilesHead | None:
        """Return the state of the workspace, or None if the database has no files of it."""
        return self.find_heads([self.name]).get(self.name)

    def find_heads(self, names: Sequence[str]) -> dict[str, FilesHead]:
        """Return the states of some workspaces."""
        with self.database.statement() as connection:
            rows = connection.execute(
                "SELECT name, token, seq, erasures FROM file_workspaces WHERE name = ANY(%s)", [[*names]]
            ).fetchall()
        return {name: FilesHead(*head) for name, *head in rows}

    def list_changes(self, since: int, also: Sequence[str] = ()) -> tuple[FilesHead, list[TeamFileRow], list[GrownRow]]:
        """Return the state, and what was changed after a change, or is named in ``also``, as of one moment."""
        with self.database.reading() as connection:
            record = connection.execute(
                "SELECT token, seq, erasures, id FROM file_workspaces WHERE name = %s", [self.name]
            ).fetchone()
            if record is None:
                return FilesHead("", 0, 0), [], []
            *head, workspace = record
            rows = connection.execute(
                "SELECT path, version, seq, sha256, coalesce(octet_length(content), 0), host FROM files"
                " WHERE workspace = %s AND (seq > %s OR path = ANY(%s)) ORDER BY seq, path",
                [workspace, since, [*also]],
            ).fetchall()
            grown = connection.execute(
                "SELECT path, epoch, size, seq, host FROM grown_files"
                " WHERE workspace = %s AND (seq > %s OR path = ANY(%s)) ORDER BY seq, path",
                [workspace, since, [*also]],
            ).fetchall()
        return FilesHead(*head), [TeamFileRow(*row) for row in rows], [GrownRow(*row) for row in grown]

    def iter_contents(self, rows: Sequence[TeamFileRow]) -> Iterator[tuple[TeamFileRow, bytes | None]]:
        """Yield files with their bytes as they are now, some at a time. One that is damaged has another SHA-256."""
        batch: list[TeamFileRow] = []
        size = 0
        for row in rows:
            batch.append(row)
            size += row.size
            if size >= _FETCH_BYTES or len(batch) >= _FETCH_FILES:
                yield from self._fetch(batch)
                batch, size = [], 0
        if batch:
            yield from self._fetch(batch)

    def _fetch(self, rows: Sequence[TeamFileRow]) -> Iterator[tuple[TeamFileRow, bytes | None]]:
        with self.database.reading() as connection:
            record = connection.execute(
                "SELECT path, version, f.seq, sha256, coalesce(octet_length(content), 0), host, content FROM files f"
                " JOIN file_workspaces w ON w.id = f.workspace WHERE w.name = %s AND path = ANY(%s)"
                " AND coalesce(octet_length(content), 0) <= %s",
                [self.name, [row.path for row in rows], max(max(row.size for row in rows), _FETCH_BYTES)],
                binary=True,
            ).fetchall()
        by_path = {row[0]: row for row in record}
        for row in rows:
            if row.path in by_path:
                *fields, content = by_path[row.path]
                yield TeamFileRow(*fields), None if content is None else bytes(content)

    def find_base(self, path: str, version: int, current: bytes) -> bytes:
        """Return an earlier version that a file was changed from, or nothing if it is not kept any more.

        Of a version with a forgotten text only hashes are known. Then return the lines of the file that it had: a line
        that was forgotten elsewhere counts as unchanged here, and goes.
        """
        with self.database.statement() as connection:
            row = connection.execute(
                "SELECT v.content, v.is_hashed, w.token FROM file_versions v"
                " JOIN file_workspaces w ON w.id = v.workspace"
                " WHERE w.name = %s AND v.path = %s AND v.version = %s",
                [self.name, path, version],
                binary=True,
            ).fetchone()
        if row is None:
            return b""
        content, is_hashed, token = bytes(row[0]), row[1], row[2]
        if not is_hashed:
            return content
        hashes = {content[at : at + _HASH_BYTES] for at in range(0, len(content), _HASH_BYTES)}
        return b"".join(line for line in current.splitlines(keepends=True) if _hash_line(line, token) in hashes)

    def is_earlier(self, path: str, sha256: str) -> bool:
        """Return whether a file had this content before."""
        with self.database.statement() as connection:
            row = connection.execute(
                "SELECT 1 FROM file_versions v JOIN file_workspaces w ON w.id = v.workspace"
                " WHERE w.name = %s AND v.path = %s AND v.sha256 = %s LIMIT 1",
                [self.name, path, sha256],
            ).fetchone()
        return row is not None

    def read_pieces(self, path: str, epoch: int, start: int) -> bytes | None:
        """Return the bytes of a growing file from ``start`` on, or None if it has another epoch now."""
        with self.database.reading() as connection:
            record = connection.execute(
                "SELECT g.workspace FROM grown_files g JOIN file_workspaces w ON w.id = g.workspace"
                " WHERE w.name = %s AND path = %s AND epoch = %s",
                [self.name, path, epoch],
            ).fetchone()
            if record is None:
                return None
            rows = connection.execute(
                "SELECT data FROM file_pieces WHERE workspace = %s AND path = %s AND start >= %s ORDER BY start",
                [record[0], path, start],
                binary=True,
            ).fetchall()
        return b"".join(bytes(data) for (data,) in rows)

    # writing

    def commit(self, files: Sequence[SentFile], pieces: Sequence[SentPiece], *, token: str, host: str) -> Acceptance:
        """Accept each file and piece of which no other machine was first. Raise WrongCopy if the token differs."""
        with self.database.writing() as connection:
            row = connection.execute(
                "UPDATE file_workspaces SET seq = seq + 1 WHERE name = %s RETURNING id, token, seq, erasures",
                [self.name],
            ).fetchone()
            if row is None or row[1] != token:
                raise WrongCopy
            workspace, head = row[0], FilesHead(*row[1:])
            accepted = [
                *_accept_files(connection, workspace, files, head.seq, host),
                *_accept_pieces(connection, workspace, pieces, head.seq, host),
            ]
            notify(connection, self.database.schema, self.topic, by=process_name())
        taken = set(accepted)
        sent_paths = [sent.path for sent in files] + [sent.path for sent in pieces]
        refused = [path for path in sent_paths if path not in taken]
        return Acceptance(head, tuple(accepted), tuple(refused))

    def rewrite(self, row: TeamFileRow, data: bytes) -> int:
        """Write the content of a version anew. Return how many rows that changed."""
        with self.database.writing() as connection:
            return connection.execute(
                "UPDATE files f SET content = %b FROM file_workspaces w WHERE w.id = f.workspace AND w.name = %s"
                " AND f.path = %s AND f.version = %s AND f.sha256 = %s",
                [data, self.name, row.path, row.version, row.sha256],
            ).rowcount

    def note_seen(self, machine: str, host: str, seen: int) -> None:
        """Note what a machine has seen, and drop earlier versions that no machine can have any more."""
        with self.database.writing() as connection:
            row = connection.execute("SELECT id FROM file_workspaces WHERE name = %s", [self.name]).fetchone()
            if row is None:
                return
            connection.execute(
                "INSERT INTO file_copies (workspace, machine, host, seen) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT (workspace, machine) DO UPDATE SET host = excluded.host, seen = excluded.seen,"
                " seen_at = clock_timestamp()",
                [row[0], machine, host, seen],
            )
            connection.execute(
                "DELETE FROM file_versions WHERE workspace = %(workspace)s AND replaced <= (SELECT min(seen)"
                " FROM file_copies WHERE workspace = %(workspace)s"
                "  AND seen_at > clock_timestamp() - %(days)s * interval '1 day')",
                {"workspace": row[0], "days": _REMEMBER_DAYS},
            )

    def hash_versions(self) -> int:
        """Replace all earlier versions by hashes of their lines, since a text was forgotten. Return their number."""
        count = 0
        with self.database.writing() as connection:
            record = connection.execute(
                "UPDATE file_workspaces SET seq = seq + 1, erasures = erasures + 1 WHERE name = %s RETURNING id, token",
                [self.name],
            ).fetchone()
            if record is None:
                return 0
            workspace, token = record
            keys = connection.execute(
                "SELECT path, version FROM file_versions WHERE workspace = %s AND NOT is_hashed", [workspace]
            ).fetchall()
            for key in keys:
                where = "WHERE workspace = %s AND path = %s AND version = %s"
                row = connection.execute(
                    f"SELECT content FROM file_versions {where}", [workspace, *key], binary=True
                ).fetchone()
                if row is not None:
                    hashes = b"".join(_hash_line(line, token) for line in bytes(row[0]).splitlines())
                    connection.execute(
                        f"UPDATE file_versions SET content = %b, is_hashed = true {where}", [hashes, workspace, *key]
                    )
                    count += 1
            notify(connection, self.database.schema, self.topic, by=process_name())
        return count


def _hash_line(line: bytes, token: str) -> bytes:
    return hashlib.sha256(token.encode() + line.strip()).digest()[:_HASH_BYTES]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _accept_files(connection: Connection, workspace: int, files: Sequence[SentFile], seq: int, host: str) -> list[str]:
    if not files:
        return []
    rows = connection.execute(
        "SELECT path, version FROM files WHERE workspace = %s AND path = ANY(%s)",
        [workspace, [sent.path for sent in files]],
    ).fetchall()
    versions: dict[str, int] = dict(rows)
    accepted = [sent for sent in files if versions.get(sent.path, 0) == sent.base]
    connection.execute(
        "INSERT INTO file_versions (workspace, path, version, sha256, content, replaced)"
        " SELECT workspace, path, version, sha256, content, %s FROM files"
        " WHERE workspace = %s AND path = ANY(%s) AND content IS NOT NULL",
        [seq, workspace, [sent.path for sent in accepted]],
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO files (workspace, path, version, seq, sha256, content, host)"
            " VALUES (%s, %s, %s, %s, %s, %b, %s)"
            " ON CONFLICT (workspace, path) DO UPDATE SET version = excluded.version, seq = excluded.seq,"
            "  sha256 = excluded.sha256, content = excluded.content, host = excluded.host, changed = excluded.changed",
            [
                (
                    workspace,
                    sent.path,
                    sent.base + 1,
                    seq,
                    None if sent.data is None else digest(sent.data),
                    sent.data,
                    host,
                )
                for sent in accepted
            ],
        )
    return [sent.path for sent in accepted]


def _accept_pieces(
    connection: Connection, workspace: int, pieces: Sequence[SentPiece], seq: int, host: str
) -> list[str]:
    if not pieces:
        return []
    rows = connection.execute(
        "SELECT path, epoch, size FROM grown_files WHERE workspace = %s AND path = ANY(%s)",
        [workspace, [sent.path for sent in pieces]],
    ).fetchall()
    known = {path: (epoch, size) for path, epoch, size in rows}
    accepted: list[str] = []
    for sent in pieces:
        epoch, size = known.get(sent.path, (0, 0))
        if epoch != sent.epoch or (size != sent.start and not sent.is_whole and not sent.is_gone):
            continue
        if sent.is_whole or sent.is_gone:
            connection.execute("DELETE FROM file_pieces WHERE workspace = %s AND path = %s", [workspace, sent.path])
        begin = 0 if sent.is_whole else sent.start
        for offset in range(0, len(sent.data), PIECE_BYTES):
            connection.execute(
                "INSERT INTO file_pieces (workspace, path, start, data) VALUES (%s, %s, %s, %b)",
                [workspace, sent.path, begin + offset, sent.data[offset : offset + PIECE_BYTES]],
            )
        connection.execute(
            "INSERT INTO grown_files (workspace, path, epoch, size, seq, host) VALUES (%s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (workspace, path) DO UPDATE SET epoch = excluded.epoch, size = excluded.size,"
            "  seq = excluded.seq, host = excluded.host",
            [workspace, sent.path, sent.next_epoch, sent.next_size, seq, host],
        )
        accepted.append(sent.path)
    return accepted
