"""Records of an agent in the database of a team: the inbox that its gateways share, the schedules, and the list of
its sessions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kept.config import Config
from kept.forgetting.needles import Matcher
from kept.forgetting.order import ForgetOrder, ScrubResult
from kept.forgetting.person_messages import PersonRemoval, remove_person
from kept.forgetting.record_files import INBOX, scrub_json, scrub_line
from kept.wording import plural

if TYPE_CHECKING:
    from kept.postgres.database import Connection


class TeamRecordStore:
    """Scrubs the rows of an agent. The gateways read their inbox again when it has changed."""

    name = "records of the team"

    def __init__(self, config: Config) -> None:
        self.config = config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        if not self.config.memory_search.store.is_shared:
            return ScrubResult()
        from kept.postgres.leases import process_name
        from kept.postgres.notifications import notify
        from kept.postgres.open_database import open_database
        from kept.postgres.table_rewrite import rewrite_tables

        database, agent = open_database(self.config.memory_search.store), self.config.agent_id
        matcher = Matcher(order.needles)
        with database.writing() as connection:
            connection.execute("SELECT 1 FROM inboxes WHERE agent = %s FOR UPDATE", [agent])
            person = PersonRemoval()
            if order.request == "person":
                person = remove_person(connection, agent, self.config, order.words[0])
            messages = person.removed + _scrub_inbox(connection, agent, matcher)
            if messages:
                connection.execute("UPDATE inboxes SET epoch = epoch + 1 WHERE agent = %s", [agent])
                notify(connection, database.schema, f"inbox {agent}", by=process_name())
            removed = messages + _scrub_documents(connection, agent, matcher)
        problems = rewrite_tables(database, ("inbox_records", "conversations", "documents")) if removed else ()
        remarks = problems
        if person.waiting:
            remarks += (f"inbox: {plural(person.waiting, 'message')} of the person that a gateway has yet to answer",)
        return ScrubResult(removed=removed, unreachable=remarks, is_complete=not remarks)


class TeamSessionStore:
    """Scrubs the list of the team's sessions, after the catalogue here, from which rows are written again."""

    name = "sessions of the team"

    def __init__(self, config: Config) -> None:
        self.config = config

    def scrub(self, order: ForgetOrder) -> ScrubResult:
        from kept.postgres.open_database import open_database
        from kept.postgres.table_rewrite import rewrite_tables
        from kept.sessions.shared_catalogue import lock_session_records

        database, agent = open_database(self.config.memory_search.store), self.config.agent_id
        with database.writing() as connection:
            lock_session_records(connection, agent)
            removed = _scrub_sessions(connection, agent, Matcher(order.needles), order.sessions)
        # Rewritten in any case: the row of a transcript that lost its text may have been replaced already.
        problems = rewrite_tables(database, ("session_records",))
        return ScrubResult(removed=removed, unreachable=problems, is_complete=not problems)


def _scrub_inbox(connection: Connection, agent: str, matcher: Matcher) -> int:
    removed = 0
    rows = connection.execute("SELECT seq, record FROM inbox_records WHERE agent = %s", [agent]).fetchall()
    for seq, text in rows:
        raw = str(text).encode()
        if not matcher.may_match_raw(raw):
            continue
        scrubbed = scrub_line(raw, matcher, INBOX)
        if scrubbed is not None and scrubbed != raw:
            connection.execute(
                "UPDATE inbox_records SET record = %s WHERE agent = %s AND seq = %s",
                [scrubbed.decode().rstrip("\n"), agent, seq],
            )
            removed += 1
    return removed


def _scrub_documents(connection: Connection, agent: str, matcher: Matcher) -> int:
    removed = 0
    rows = connection.execute("SELECT name, content FROM documents WHERE agent = %s FOR UPDATE", [agent]).fetchall()
    for name, content in rows:
        raw = str(content).encode()
        scrubbed = scrub_json(raw, matcher)
        if scrubbed != raw:
            connection.execute(
                "UPDATE documents SET content = %s WHERE agent = %s AND name = %s", [scrubbed.decode(), agent, name]
            )
            removed += 1
    return removed


def _scrub_sessions(connection: Connection, agent: str, matcher: Matcher, session_ids: Collection[str]) -> int:
    """Take text out of what is known of sessions, and all of it for those that are forgotten as a whole. The machine
    that has a session writes its row again when the conversation goes on."""
    removed = 0
    query = "SELECT machine, file, session_id, record FROM session_records WHERE agent = %s FOR UPDATE"
    for machine, file, session_id, record in connection.execute(query, [agent]).fetchall():
        raw = str(record).encode()
        scrubbed = b"{}" if session_id in session_ids else scrub_json(raw, matcher)
        if scrubbed != raw:
            connection.execute(
                "UPDATE session_records SET record = %s WHERE agent = %s AND machine = %s AND file = %s",
                [scrubbed.decode(), agent, machine, file],
            )
            removed += 1
    return removed
