"""Build transcripts in the formats of other programs, and import them."""

import json
from pathlib import Path
from typing import Any

from kept.sessions.entries import Entry, Message
from kept.sessions.importers.import_run import Format, ImportReport, import_sessions
from kept.sessions.store import SessionStore
from tests.support.files import write_file


def lines(*records: dict[str, Any] | str) -> str:
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records)


def bring_in(home: Path, format_name: Format, path: Path, **options: Any) -> ImportReport:
    with SessionStore.open(home=home) as store:
        return import_sessions(store, format_name, path, **options)


def bring_records(home: Path, format_name: Format, path: Path, *records: dict[str, Any] | str) -> ImportReport:
    """Write records into a file, and import its folder."""
    write_file(path, lines(*records))
    return bring_in(home, format_name, path.parent)


def entries_of(home: Path, session_id: str) -> list[Any]:
    """Return all entries of a transcript, on every branch, without its header."""
    with SessionStore.open(home=home) as store:
        return [line.content for line in store.iter_lines(session_id)][1:]


def messages_of(home: Path, session_id: str) -> list[Message]:
    return [
        one.body for one in entries_of(home, session_id) if isinstance(one, Entry) and isinstance(one.body, Message)
    ]


def record_of(home: Path, session_id: str):
    with SessionStore.open(home=home) as store:
        return store.get(session_id)


# pi and OpenClaw


def pi_header(session_id: str = "walk-1", **more: Any) -> dict[str, Any]:
    stamp = "2026-01-05T10:00:00.000Z"
    return {"type": "session", "version": 3, "id": session_id, "timestamp": stamp, "cwd": "/garden", **more}


def pi_entry(kind: str, own: str, parent: str | None, minute: int = 1, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": own, "parentId": parent, "timestamp": f"2026-01-05T10:{minute:02d}:00.000Z", **fields}


def pi_user(own: str, parent: str | None, text: str, minute: int = 1) -> dict[str, Any]:
    return pi_entry("message", own, parent, minute, message={"role": "user", "content": text})


def pi_answer(own: str, parent: str | None, *blocks: dict[str, Any], minute: int = 2) -> dict[str, Any]:
    usage = {"input": 10, "output": 5, "cacheRead": 100, "cacheWrite": 1, "totalTokens": 116}
    message = {"role": "assistant", "content": list(blocks), "model": "m-1", "provider": "p", "usage": usage}
    return pi_entry("message", own, parent, minute, message=message)


def say(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# Claude Code


def cc(kind: str, own: str, parent: str | None, minute: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": own,
        "parentUuid": parent,
        "sessionId": "cc-1",
        "cwd": "/garden",
        "isSidechain": False,
        "timestamp": f"2026-02-03T08:{minute:02d}:00.000Z",
        **fields,
    }


def cc_user(own: str, parent: str | None, content: Any, minute: int = 1, **fields: Any) -> dict[str, Any]:
    return cc("user", own, parent, minute, message={"role": "user", "content": content}, **fields)


def cc_answer(own, parent, *blocks: dict[str, Any], answer="msg-1", output=5, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": output}
    message = {"id": answer, "role": "assistant", "model": "m-2", "content": list(blocks), "usage": usage}
    return cc("assistant", own, parent, 2, message=message, **fields)


# Codex


def cx(kind: str, second: int = 0, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-04T09:00:{second:02d}.000Z", "type": kind, "payload": payload}


def cx_meta(session_id: str = "cx-1") -> dict[str, Any]:
    return cx("session_meta", id=session_id, cwd="/garden", timestamp="2026-03-04T09:00:00.000Z")


def cx_item(kind: str, second: int = 1, /, **fields: Any) -> dict[str, Any]:
    made = cx("response_item", second)
    made["payload"] = {"type": kind, **fields}
    return made


def cx_event(kind: str, second: int = 1, /, **fields: Any) -> dict[str, Any]:
    made = cx("event_msg", second)
    made["payload"] = {"type": kind, **fields}
    return made
