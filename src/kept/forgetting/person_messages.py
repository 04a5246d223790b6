"""Messages of a person in the inbox of a team: their conversations are named by the person's accounts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kept.config import Config
from kept.sessions.people import People, find_account
from kept.values import frozen

if TYPE_CHECKING:
    from kept.postgres.database import Connection

_RUN = "turn"


@frozen
class PersonRemoval:
    """How many records are gone, and how many messages stay since their answers are under way."""

    removed: int = 0
    waiting: int = 0


def remove_person(connection: Connection, agent: str, config: Config, name: str) -> PersonRemoval:
    """Delete the conversations of a person and all that was finished there. The caller has locked the inbox."""
    rows = connection.execute("SELECT key FROM conversations WHERE agent = %s", [agent]).fetchall()
    keys = {str(key) for (key,) in rows if _is_of(str(key), config, name)}
    if not keys:
        return PersonRemoval()
    stored = connection.execute(
        "SELECT seq, record FROM inbox_records WHERE agent = %s ORDER BY seq", [agent]
    ).fetchall()
    records = [(int(seq), record) for seq, text in stored if (record := _read(str(text))) is not None]
    runs = {
        record[_RUN]: record
        for _, record in records
        if record.get("type") == "begun" and record.get("key") in keys and "ids" in record
    }
    messages = {
        (record["channel"], record["id"]): record["key"]
        for _, record in records
        if record.get("type") == "received" and record.get("key") in keys
    }
    steps: dict[str, list[dict[str, Any]]] = {run: [] for run in runs}
    for _, record in records:
        if record.get(_RUN) in steps:
            steps[record[_RUN]].append(record)
    finished = {run for run, taken in steps.items() if _is_finished(taken)}
    answered = {(runs[run]["channel"], message) for run in finished for message in runs[run]["ids"]}
    old_records = [
        seq
        for seq, record in records
        if record.get(_RUN) in finished or (record.get("channel"), record.get("id")) in answered & messages.keys()
    ]
    waiting = {message: key for message, key in messages.items() if message not in answered}
    connection.execute("DELETE FROM inbox_records WHERE agent = %s AND seq = ANY(%s)", [agent, old_records])
    silent = [*keys - {*waiting.values()}]
    deleted = connection.execute("DELETE FROM conversations WHERE agent = %s AND key = ANY(%s)", [agent, silent])
    return PersonRemoval(len(old_records) + deleted.rowcount, len(waiting))


def _is_of(key: str, config: Config, name: str) -> bool:
    account = find_account(key)
    if account is None or account.is_group:
        return False
    return name.strip().casefold() in map(str.casefold, (account.name, People(config).name_of(account)))


def _read(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _is_finished(records: Iterable[dict[str, Any]]) -> bool:
    """Return whether an answer is no longer wanted, or all of its parts were sent or given up."""
    parts, settled, is_pushed = None, 0, False
    for record in records:
        match record.get("type"):
            case "cancelled":
                return True
            case "answered":
                parts, is_pushed = len(record["parts"]), bool(record["push"])
            case "sent" | "unsure":
                settled = max(settled, record["part"] + 1)
    return parts is not None and (not is_pushed or settled >= parts)
