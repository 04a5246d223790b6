"""Answering lines on standard input that the SDK cannot read. It would drop them, and the client would wait forever."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from kept.limits import utf8_safe_tree

Item = SessionMessage | Exception


class Reading(Protocol):
    def __aiter__(self) -> AsyncIterator[Item]: ...


class Writing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


@asynccontextmanager
async def answer_invalid_messages(reading: Reading, writing: Writing) -> AsyncIterator[MemoryObjectReceiveStream[Item]]:
    """Yield the messages of a transport. A line that is not a message is answered with an error. JavaScript sends half
    a surrogate pair for a cut emoji: such a line is read with U+FFFD in its place."""
    sending, receiving = anyio.create_memory_object_stream[Item](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_relay, reading, sending, writing)
        yield receiving
        tasks.cancel_scope.cancel()


async def _relay(reading: Reading, sending: MemoryObjectSendStream[Item], writing: Writing) -> None:
    async with sending:
        try:
            async for item in reading:
                read = read_again(item) if isinstance(item, ValidationError) else item
                if isinstance(read, types.JSONRPCError):
                    await writing.send(SessionMessage(read))
                elif read is not None:
                    await sending.send(read)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the server has ended


def read_again(error: ValidationError) -> SessionMessage | types.JSONRPCError | None:
    """Return the message in a line that the SDK could not read, or the error to answer. None for a blank line."""
    faults = error.errors(include_url=False)
    if faults[0]["type"] != "json_invalid":
        return _refusal(types.INVALID_REQUEST, "This is not a JSON-RPC message.", _find_id(faults))
    if not faults[0]["input"].strip():
        return None
    try:
        tree = utf8_safe_tree(json.loads(faults[0]["input"]))
    except (ValueError, TypeError, RecursionError):
        return _refusal(types.PARSE_ERROR, "This line is not JSON.", None)
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_python(tree, by_name=False))
    except ValidationError as exc:
        return _refusal(types.INVALID_REQUEST, "This is not a JSON-RPC message.", _find_id(exc.errors()))


def _find_id(faults: list[Any]) -> str | int | None:
    """Return the id of the message, if any. Pydantic reports the whole message as the input of a missing field."""
    for fault in faults:
        message = fault["input"]
        if isinstance(message, dict) and type(message.get("id")) in (str, int):
            return message["id"]  # type: ignore[no-any-return]
    return None


def _refusal(code: int, message: str, request_id: str | int | None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))
