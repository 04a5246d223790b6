"""Ledgers by day: usage of embedders and models, and repairs. JSON lines in the agent's folder, or rows in the
database of a team.

The text fields of an entry form its key, and the numbers of entries with the same key are added up. A line that
cannot be read, or whose numbers are impossible, is not counted.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from kept.clock import Clock, new_id
from kept.config import Config
from kept.damaged_records import Fault, repair_end, set_aside
from kept.durable import append_durably, make_private_folder, write_atomic
from kept.errors import KeptError, StoreUnreachable, WorkspaceError
from kept.file_lock import locked
from kept.limits import MAX_COUNT, is_amount, is_utf8
from kept.reports import ModelSpending, Repair, Spending

if TYPE_CHECKING:
    from kept.postgres.database import Connection, Database

COMPACT_ABOVE_BYTES = 256_000
_LOCK_WAIT_S = 5.0
_SUM_UP_EVERY = 1_000
"""Entries after which those in a database are summed up."""
UNSENT_ENDING = ".unsent"
_NOT_AN_ENTRY = "it is not a ledger entry, or its numbers cannot be true; it is not counted"

LedgerEntry = TypeVar("LedgerEntry", Spending, ModelSpending, Repair)


class Ledger(Generic[LedgerEntry]):
    """A file of entries of one kind. ``compact_above_bytes`` is the size above which entries are summed up."""

    def __init__(
        self, path: str, clock: Clock, kind: type[LedgerEntry], *, compact_above_bytes: int = COMPACT_ABOVE_BYTES
    ) -> None:
        self.path = path
        self.clock = clock
        self._kind: type[LedgerEntry] = kind
        self._compact_above_bytes = compact_above_bytes

    def today(self) -> str:
        return f"{self.clock.now():%Y-%m-%d}"

    def record(self, entry: LedgerEntry) -> str | None:
        """Add an entry, for today unless it names a day. An entry of zeros is not written.

        Return a message if it could not be written: a ledger must not stop other work.
        """
        if not any(isinstance(value, int) and value for value in asdict(entry).values()):
            return None
        try:
            with self.locked():
                self.add(entry)
        except (KeptError, OSError) as exc:
            reason = exc.message if isinstance(exc, KeptError) else exc
            return f"The ledger could not be written: {reason}"
        return None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the ledger, for a caller that has to read before it adds."""
        make_private_folder(os.path.dirname(self.path))
        with locked(f"{self.path}.lock", wait_s=_LOCK_WAIT_S, purpose="writing the ledger"):
            yield

    def add(self, entry: LedgerEntry) -> None:
        """Append an entry. The caller holds the lock."""
        repair_end(self.path, lambda raw: self._parse(raw) is not None)
        append_durably(self.path, _to_line(entry if entry.day else replace(entry, day=self.today())))
        if os.path.getsize(self.path) > self._compact_above_bytes:
            set_aside(self.path, self._damaged())
            write_atomic(self.path, b"".join(map(_to_line, self.by_day())))

    def by_day(self) -> list[LedgerEntry]:
        """Return one entry for each day and key, oldest first."""
        sums: dict[tuple[str, ...], LedgerEntry] = {}
        for entry in filter(None, map(self._parse, self._raw_lines())):
            key = _key(entry)
            sums[key] = _sum(sums[key], entry) if key in sums else entry
        return [sums[key] for key in sorted(sums)]

    # damage

    def faults(self) -> list[Fault]:
        """Return the lines that are not counted. Change nothing."""
        lines = enumerate(self._raw_lines(), 1)
        return [Fault(self.path, number, _NOT_AN_ENTRY) for number, raw in lines if self._parse(raw) is None]

    def repair(self) -> None:
        """Set aside the lines that are not counted."""
        if not self._damaged():
            return
        with self.locked():
            set_aside(self.path, self._damaged())
            write_atomic(self.path, b"".join(raw + b"\n" for raw in self._raw_lines() if self._parse(raw)))

    def _damaged(self) -> list[bytes]:
        return [raw for raw in self._raw_lines() if self._parse(raw) is None]

    def _raw_lines(self) -> Sequence[bytes]:
        try:
            with open(self.path, "rb") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise WorkspaceError(f"{self.path}: cannot be read ({exc.strerror}).") from exc

    def _parse(self, raw: bytes) -> LedgerEntry | None:
        """Return the entry of a line, or None for a damaged line, which is not counted."""
        try:
            entry = self._kind(**json.loads(raw))
        except (ValueError, TypeError, RecursionError):
            return None
        return entry if all(_fits(spec.default, getattr(entry, spec.name)) for spec in fields(entry)) else None


class SharedLedger(Ledger[LedgerEntry]):
    """Entries of one kind in the database of a team: those of all its machines.

    While the database cannot be reached, entries go to the file ``unsent``, and the next one that reaches it takes them
    along. Until then, this machine counts them together with what it last read of the others.
    """

    def __init__(self, database: Database, agent: str, clock: Clock, kind: type[LedgerEntry], *, unsent: str) -> None:
        super().__init__(f"ledger of {agent}", clock, cast(Any, kind))
        self._database = database
        self._key = [agent, kind.__name__]
        self._local: UnsentEntries[LedgerEntry] = UnsentEntries(unsent, clock, kind)
        self._own = threading.local()
        """The transaction of each thread that holds the lock, and whether it holds that of the file."""
        self._last_read: list[bytes] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._database.writing(timeout_s=_LOCK_WAIT_S))
            except StoreUnreachable:
                stack.enter_context(self._local.locked())
                self._own.is_local = True
                stack.callback(setattr, self._own, "is_local", False)
                yield
                return
            # Advisory locks are the database's, which other teams may use too.
            name = f"kept ledger {self._database.schema} {self._key}"
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
            self._own.connection = connection
            stack.callback(setattr, self._own, "connection", None)
            sent = self._send_local(connection)
            yield
        for path in sent:  # now that it is committed
            with suppress(FileNotFoundError):  # another process found it before it was deleted here
                os.unlink(path)

    def add(self, entry: LedgerEntry) -> None:
        entry = entry if entry.day else replace(entry, day=self.today())
        if getattr(self._own, "is_local", False):
            self._local.add(entry)
            return
        row = self._own.connection.execute(
            "INSERT INTO ledger_entries (agent, kind, entry) VALUES (%s, %s, %s) RETURNING id",
            [*self._key, _to_line(entry).decode()],
        ).fetchone()
        if row[0] % _SUM_UP_EVERY == 0:
            lines = [_to_line(entry) for entry in self.by_day()]
            self._own.connection.execute("DELETE FROM ledger_entries WHERE agent = %s AND kind = %s", self._key)
            self._insert(self._own.connection, lines)

    def _insert(self, connection: Connection, lines: Iterable[bytes]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO ledger_entries (agent, kind, entry) VALUES (%s, %s, %s)",
                [(*self._key, line.decode()) for line in lines],
            )

    def _send_local(self, connection: Connection) -> list[str]:
        """Add the entries of files that wait, each file once, even if this process is killed before it deletes them.
        Return the files."""
        paths = self._local.take_waiting()
        if not paths:
            return []
        agent, kind = self._key
        marker = f"sent {kind} {self._local.sender}"
        query = "SELECT content FROM documents WHERE agent = %s AND name = %s"
        row = connection.execute(query, [agent, marker]).fetchone()
        before = json.loads(row[0]) if row else []
        for path in paths:
            if os.path.basename(path) not in before:
                self._insert(connection, self._local.read_entries(path))
        connection.execute(
            "INSERT INTO documents (agent, name, content) VALUES (%s, %s, %s)"
            " ON CONFLICT (agent, name) DO UPDATE SET content = excluded.content",
            [agent, marker, json.dumps([os.path.basename(path) for path in paths])],
        )
        return paths

    def repair(self) -> None:
        """Do nothing: an entry of the database that cannot be read is not counted."""

    def _raw_lines(self) -> Sequence[bytes]:
        if getattr(self._own, "is_local", False):
            return [*self._last_read, *self._local.read_all()]
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            return self._select(connection)
        with self._database.reading() as reader:
            return self._select(reader)

    def _select(self, connection: Connection) -> list[bytes]:
        rows = connection.execute(
            "SELECT entry FROM ledger_entries WHERE agent = %s AND kind = %s ORDER BY id", self._key
        ).fetchall()
        self._last_read = [str(entry).encode() for (entry,) in rows]
        return self._last_read


class UnsentEntries(Ledger[LedgerEntry]):
    """Entries that wait for the database of a team, in a file of this machine."""

    @property
    def sender(self) -> str:
        """A name of this file among those of all machines."""
        import hashlib
        import socket

        return hashlib.sha256(f"{socket.gethostname()}:{self.path}".encode("utf-8", "replace")).hexdigest()[:32]

    def take_waiting(self) -> list[str]:
        """Return the files with entries to send. None of them gets further entries."""
        if not os.path.exists(self.path) and not self._taken():
            return []
        with self.locked():
            if os.path.exists(self.path):
                os.rename(self.path, f"{self.path}-{new_id()}")
            return self._taken()

    def _taken(self) -> list[str]:
        folder, name = os.path.split(self.path)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [os.path.join(folder, other) for other in names if other.startswith(f"{name}-")]

    def read_entries(self, path: str) -> list[bytes]:
        try:
            with open(path, "rb") as file:
                return [raw for raw in file.read().splitlines() if self._parse(raw) is not None]
        except FileNotFoundError:
            return []  # another process has sent it

    def read_all(self) -> list[bytes]:
        return [raw for path in (*self._taken(), self.path) for raw in self.read_entries(path)]


def open_embedding_ledger(config: Config, clock: Clock) -> Ledger[Spending]:
    return _open(config, clock, Spending, config.paths.embedding_ledger)


def open_model_ledger(config: Config, clock: Clock) -> Ledger[ModelSpending]:
    return _open(config, clock, ModelSpending, config.paths.model_ledger)


def _open(config: Config, clock: Clock, kind: type[LedgerEntry], path: str) -> Ledger[LedgerEntry]:
    if not config.memory_search.store.is_shared:
        return Ledger(path, clock, kind)
    from kept.postgres.open_database import open_database

    return SharedLedger(
        open_database(config.memory_search.store), config.agent_id, clock, kind, unsent=f"{path}{UNSENT_ENDING}"
    )


def open_repair_ledger(folder: str, clock: Clock) -> Ledger[Repair]:
    """Open the ledger of repairs in an agent's folder."""
    return Ledger(os.path.join(folder, "heals.jsonl"), clock, Repair)


def tokens_of_day(entries: Iterable[ModelSpending], day: str) -> int:
    return sum(entry.tokens for entry in entries if entry.day == day)


def _fits(default: object, value: object) -> bool:
    """Return whether a value has the type of its default and is possible. Corrections of an estimate are negative."""
    if isinstance(default, int):
        return type(value) is int and abs(value) <= MAX_COUNT
    if default is None:
        return value is None or is_amount(value)
    return isinstance(value, str) and is_utf8(value)


def _to_line(entry: Spending | ModelSpending | Repair) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"


def _key(entry: Spending | ModelSpending | Repair) -> tuple[str, ...]:
    """Return the day and the other texts of an entry."""
    texts = {name: value for name, value in asdict(entry).items() if isinstance(value, str)}
    return (texts.pop("day"), *texts.values())


def _sum(left: LedgerEntry, right: LedgerEntry) -> LedgerEntry:
    sums: dict[str, Any] = {}
    for spec in fields(left):
        value, other = getattr(left, spec.name), getattr(right, spec.name)
        if not isinstance(value, str):
            sums[spec.name] = None if value is None or other is None else value + other
    return replace(left, **sums)
