"""The inbox of an agent in the database of a team, which the gateways of several machines answer together.

Each gateway has the state of the whole inbox in memory, and reads the records of the others as it hears of them. A
conversation belongs to one gateway at a time: only its owner begins answers there and records what becomes of them.
The database refuses records of a gateway that has lost a conversation. A gateway is alive as long as it renews its
lease; then the conversations of a dead one are free for all.

Another server may lack the last records, after a failover. Every gateway knows them, and the first one to notice
records them again (`inbox_restore`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from kept.agent.events import Inbound
from kept.clock import Clock, new_id
from kept.damaged_records import Fault
from kept.errors import StoreError, WriteFailed
from kept.postgres.database import SERVER_START, Connection, Database
from kept.postgres.leases import process_name, take_lease
from kept.postgres.notifications import make_notice, notify
from kept.remote_errors import ConversationTaken
from kept.responder.answer_run import AcceptedMessage, AnswerRun, check_same
from kept.responder.inbox import MAX_FINISHED_RUNS, REWRITE_AFTER_RUNS, Inbox
from kept.responder.inbox_records import (
    RUN_ID,
    Record,
    RecordValidator,
    advance,
    begun_record,
    parse_record,
    received_record,
)
from kept.responder.inbox_restore import InboxContents, missing_records
from kept.sessions.session_key import SessionKey

LEASE_S = 15.0
_TIMEOUT_S = 10.0
_LOCK_FREE = """
SELECT key FROM conversations WHERE agent = %s AND key = ANY(%s) ORDER BY key FOR UPDATE SKIP LOCKED
"""
# In a statement of its own: one that waits for a row sees the new owner, but only the leases of before.
_TAKE = """
UPDATE conversations SET owner = %(me)s WHERE agent = %(agent)s AND key = ANY(%(keys)s) AND NOT EXISTS
(SELECT 1 FROM leases WHERE name = 'process ' || conversations.owner AND name <> 'process ' || %(me)s
AND expires > clock_timestamp()) RETURNING key
"""
# One statement, since a transaction that holds the inbox should be short.
_ADD = """
WITH added AS (INSERT INTO inbox_records (agent, seq, kind, channel, name, record)
  SELECT %s, %s + number, kind, channel, name, record
  FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) WITH ORDINALITY v(kind, channel, name, record, number))
UPDATE inboxes SET seq = %s WHERE agent = %s RETURNING pg_notify(%s, %s)
"""
_POSITION = f"SELECT seq, epoch, {SERVER_START} FROM inboxes WHERE agent = %s"

log = logging.getLogger(__name__)


def inbox_topic(agent: str) -> str:
    """Return what notices about changes of an agent's inbox are called."""
    return f"inbox {agent}"


class SharedInbox(Inbox):
    """``owner`` names this gateway among those of the team."""

    is_shared = True

    def __init__(
        self,
        database: Database,
        agent: str,
        *,
        clock: Clock,
        lease_s: float = LEASE_S,
        owner: str | None = None,
        max_finished_runs: int = MAX_FINISHED_RUNS,
        rewrite_after_runs: int = REWRITE_AFTER_RUNS,
    ) -> None:
        super().__init__(clock, max_finished_runs=max_finished_runs, rewrite_after_runs=rewrite_after_runs)
        self.database = database
        self.agent = agent
        self.lease_s = lease_s
        self.owner = owner or process_name()
        self._owned: set[str] = set()
        self._seq = self._epoch = 0
        self._server_start: int | None = None
        """When the server was started whose records are in memory."""
        self._unconfirmed: InboxContents | None = None
        """What this gateway knew when it met another server, until that has it too."""
        self._faults: list[Fault] = []
        self._validator = RecordValidator()
        self._changed: set[str] = set()
        """Conversations whose records of others were applied since the last `catch_up`."""
        self._turn = threading.Lock()
        """Held while this process reads or adds records."""
        self._read_new()

    @property
    def faults(self) -> list[Fault]:
        return self._faults

    # conversations

    def owns(self, key: str) -> bool:
        return key in self._owned

    def claim(self, keys: Iterable[str]) -> list[str]:
        wanted = [*keys]
        if not wanted:
            return []
        with self._turn, self._writing() as connection:
            # A conversation that another gateway takes, or writes to, is not free: nobody waits for it.
            rows = connection.execute(_LOCK_FREE, [self.agent, wanted]).fetchall()
            taken = self._take(connection, [key for (key,) in rows])
            position = connection.execute(_POSITION, [self.agent]).fetchone()
            if taken and position:
                self._read_records(connection, *position)  # what the last owner has recorded
        self._owned |= taken
        return [key for key in wanted if key in taken]

    def _take(self, connection: Connection, keys: list[str]) -> set[str]:
        """Take those of some conversations, whose rows are locked, that no living gateway has. Return them."""
        if not keys:
            return set()
        values = {"me": self.owner, "agent": self.agent, "keys": keys}
        return {str(key) for (key,) in connection.execute(_TAKE, values).fetchall()}

    def renew(self) -> set[str]:
        """Renew the lease of this gateway. Return the conversations that it has lost."""
        with self._turn, self._writing() as connection:
            take_lease(connection, self._lease, self.owner, self.lease_s)
            connection.execute("DELETE FROM leases WHERE expires < clock_timestamp() - interval '1 day'")
            rows = connection.execute(
                "SELECT key FROM conversations WHERE agent = %s AND owner = %s", [self.agent, self.owner]
            ).fetchall()
        owned = {str(key) for (key,) in rows}
        lost, self._owned = self._owned - owned, owned
        return lost

    def release(self) -> None:
        """End the lease of this gateway, so that the others need not wait for that."""
        with self._turn, self._writing() as connection:
            connection.execute("DELETE FROM leases WHERE name = %s AND owner = %s", [self._lease, self.owner])
            notify(connection, self.database.schema, inbox_topic(self.agent), by=self.owner)
        self._owned.clear()

    @property
    def _lease(self) -> str:
        return f"process {self.owner}"

    # reading

    # These are read by the event loop, while another thread may replace what is in memory.

    def find(self, channel: str, message_id: str) -> AcceptedMessage | None:
        with self._lock:
            return super().find(channel, message_id)

    def find_run(self, message: AcceptedMessage) -> AnswerRun | None:
        with self._lock:
            return super().find_run(message)

    def messages_of(self, run: AnswerRun) -> list[AcceptedMessage]:
        with self._lock:
            return super().messages_of(run)

    def catch_up(self) -> set[str]:
        """Apply the records of other gateways. Return the keys of the conversations that they changed."""
        try:
            self._read_new()
        except StoreError as exc:
            raise _as_write_failed(exc) from exc
        changed, self._changed = self._changed, set()
        return changed

    def _read_new(self) -> None:
        with self._turn:
            with self.database.reading() as connection:
                row = connection.execute(_POSITION, [self.agent]).fetchone()
                if row:
                    self._read_records(connection, *row)
            self._restore()

    def _read_records(self, connection: Connection, seq: int, epoch: int, server_start: int) -> None:
        is_same_server = self._server_start in (None, server_start)
        is_same = is_same_server and epoch == self._epoch
        if is_same and seq <= self._seq:
            self._server_start = server_start
            return
        rows = connection.execute(
            "SELECT seq, record FROM inbox_records WHERE agent = %s AND seq > %s AND seq <= %s ORDER BY seq",
            [self.agent, self._seq if is_same else 0, seq],
        ).fetchall()
        with self._lock:
            if not is_same:
                self._start_over(keep=not is_same_server and epoch == self._epoch)
            for number, text in rows:
                record, reason = parse_record(text.encode(), self._validator)
                if record is None:
                    self._faults.append(Fault(f"inbox of {self.agent}", number, reason))
                    log.warning("%s", self._faults[-1])
                    continue
                self._apply(record)
                self._changed.add(self._key_of(record))
            self._seq, self._epoch, self._server_start = seq, epoch, server_start
            self._drop(*self._plan_drop(spare=self._rewrite_after_runs))

    def _start_over(self, *, keep: bool) -> None:
        """Drop what is in memory, since all records were replaced. ``keep`` it if the server may lack some of it."""
        before = self._unconfirmed or InboxContents({}, {})
        messages, runs = {**before.messages, **self._messages}, {**before.runs, **self._runs}
        # If all records were replaced because something was forgotten, it must not come back.
        self._unconfirmed = InboxContents(messages, runs) if keep else None
        for part in (self._messages, self._run_ids, self._runs, self._finished, self._faults):
            part.clear()
        self._validator = RecordValidator()

    def _restore(self) -> None:
        """Record again what this gateway knew and the present server lacks."""
        if self._unconfirmed is None:
            return
        with self._writing() as connection:
            seq = self._lock_inbox(connection)
            known = self._unconfirmed
            records = missing_records(known, InboxContents(self._messages, self._runs)) if known else []
            if records:
                self._insert(connection, records, seq)
                for key in {record["key"] for record in records if record["type"] == "received"}:
                    self._claim_new(connection, key)
        if records:
            log.warning("another database server lacked %d records of the inbox; they are recorded again", len(records))
        self._apply_own(records, seq)
        self._changed |= {self._key_of(record) for record in records}
        self._unconfirmed = None

    def _key_of(self, record: Record) -> str:
        if RUN_ID in record:
            return self._runs[record[RUN_ID]].key
        return self._messages[record["channel"], record["id"]].key

    # changing

    def receive(self, key: SessionKey, message: Inbound) -> AcceptedMessage:
        name, conversation = (key.channel, message.id), str(key)

        def make() -> Record | None:
            known = self._messages.get(name)
            if known is not None:
                check_same(known, conversation, message.text)
                return None
            return received_record(self._accept(key, message))

        self._append(make, conversation, is_message=True)
        return self._messages[name]

    def begin(self, messages: Sequence[AcceptedMessage], session_id: str) -> AnswerRun:
        ids = tuple(message.id for message in messages)
        run = AnswerRun(new_id(), messages[0].channel, messages[0].key, ids, session_id)
        # After a connection that broke off, an earlier attempt may have begun the run.
        self._append(lambda: None if self.find_run(messages[0]) else begun_record(run), run.key)
        return self.find_run(messages[0]) or run

    def _commit(self, record: Record) -> None:
        if RUN_ID not in record:
            self._append(lambda: record, self._messages[record["channel"], record["id"]].key, is_message=True)
            return
        run_id = record[RUN_ID]
        # A step that an earlier attempt has recorded changes nothing.
        self._append(
            lambda: None if advance(self._get_run(run_id), record) == self._get_run(run_id) else record,
            self._get_run(run_id).key,
        )

    def _append(self, make: Callable[[], Record | None], key: str, *, is_message: bool = False) -> None:
        """Add the record that ``make`` returns when all earlier ones are applied. Nothing else is added in between.

        Raise ConversationTaken if the record is about an answer and another gateway owns the conversation.
        """
        record: Record | None = None
        with self._turn:
            with self._locked_inbox() as (connection, seq):
                if is_message:
                    self._claim_new(connection, key)
                else:
                    self._require_owner(connection, key)
                record = make()
                if record is not None:
                    self._insert(connection, [record], seq)
            if record is not None:
                self._apply_own([record], seq)
                self._drop_old_runs()

    def _apply_own(self, records: Sequence[Record], seq: int) -> None:
        """Apply records that this gateway has added after the record ``seq``."""
        with self._lock:
            for record in records:
                self._validator.find_fault(record)
                self._apply(record)
            self._seq = seq + len(records)

    def _insert(self, connection: Connection, records: list[Record], seq: int) -> None:
        columns = [
            [record["type"] for record in records],
            [record.get("channel") for record in records],
            [record.get("id") or record[RUN_ID] for record in records],
            [_text(record) for record in records],
        ]
        topic = make_notice(self.database.schema, inbox_topic(self.agent), by=self.owner)
        connection.execute(_ADD, [self.agent, seq, *columns, seq + len(records), self.agent, *topic])

    def _claim_new(self, connection: Connection, key: str) -> None:
        """Take the conversation of a message, unless a living gateway has it."""
        if key in self._owned and self._is_owner(connection, key):
            return
        connection.execute(
            "INSERT INTO conversations (agent, key, owner) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            [self.agent, key, self.owner],
        )
        if self._is_owner(connection, key) or self._take(connection, [key]):
            self._owned.add(key)
        else:
            self._owned.discard(key)  # another gateway has taken it; this one may learn that here

    def _is_owner(self, connection: Connection, key: str) -> bool:
        """Return whether this gateway answers a conversation. Nobody can take it before the transaction ends."""
        row = connection.execute(
            "SELECT owner FROM conversations WHERE agent = %s AND key = %s FOR UPDATE", [self.agent, key]
        ).fetchone()
        return row == (self.owner,)

    def _require_owner(self, connection: Connection, key: str) -> None:
        if not self._is_owner(connection, key):
            self._owned.discard(key)
            raise ConversationTaken("Another gateway answers this conversation.")

    def _drop_old_runs(self) -> None:
        """Delete the oldest finished runs, once there are more than are kept. If that fails, they stay."""
        dropped, names = self._plan_drop(spare=self._rewrite_after_runs)
        if not dropped:
            return
        try:
            with self._writing() as connection:
                connection.execute(
                    "DELETE FROM inbox_records WHERE agent = %s AND name = ANY(%s)", [self.agent, [*dropped]]
                )
                with connection.cursor() as cursor:
                    cursor.executemany(
                        "DELETE FROM inbox_records WHERE agent = %s AND channel = %s AND name = %s",
                        [(self.agent, *name) for name in names],
                    )
        except WriteFailed as exc:
            log.warning("old messages stay in the inbox (%s)", exc.message)
        with self._lock:
            self._drop(dropped, names)

    def blank(self, matches: Callable[[str], bool]) -> int:
        with self._turn:
            with self._locked_inbox() as (connection, seq):
                blanked = self._plan_blank(matches)
                if not blanked.count:
                    return 0
                records = blanked.to_records()
                connection.execute("DELETE FROM inbox_records WHERE agent = %s", [self.agent])
                connection.execute("UPDATE inboxes SET epoch = epoch + 1 WHERE agent = %s", [self.agent])
                self._insert(connection, records, seq)
            self._use_blanked(blanked)
            self._seq, self._epoch = seq + len(records), self._epoch + 1
        return blanked.count

    # transactions

    @contextmanager
    def _locked_inbox(self) -> Iterator[tuple[Connection, int]]:
        """Run a transaction that no other gateway's comes between. All earlier records are applied in it."""
        while True:
            self._restore()
            with self._writing() as connection:
                seq = self._lock_inbox(connection)
                if self._unconfirmed is None:
                    yield connection, seq
                    return

    def _lock_inbox(self, connection: Connection) -> int:
        """Lock the row of the inbox, and apply all records. Return the number of the last one."""
        while (row := connection.execute(f"{_POSITION} FOR UPDATE", [self.agent]).fetchone()) is None:
            connection.execute("INSERT INTO inboxes (agent) VALUES (%s) ON CONFLICT DO NOTHING", [self.agent])
        self._read_records(connection, *row)
        return int(row[0])

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            # A gateway that is stopped in the middle must not keep the others waiting.
            with self.database.writing(timeout_s=_TIMEOUT_S, idle_s=_TIMEOUT_S) as connection:
                yield connection
        except StoreError as exc:
            raise _as_write_failed(exc) from exc


def _text(record: Record) -> str:
    return json.dumps(record, separators=(",", ":"))  # in ASCII


def _as_write_failed(error: StoreError) -> Exception:
    """Return the error that callers retry, if the database may answer later."""
    return WriteFailed(error.message, hint=error.hint) if error.retryable else error
