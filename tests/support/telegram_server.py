"""Telegram's Bot API on loopback: real HTTP, the documented answers, updates that stay until they are confirmed.

with BotApi() as api:
    api.write("Hello", user=7)         # a user writes to the bot
    api.fail("sendMessage", 429, retry_after=1)
    api.sent                           # what the bot sent
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

TOKEN = "123456:TEST-token"
BOT = {"id": 123456, "is_bot": True, "first_name": "Kept", "username": "kept_bot", "can_join_groups": True}
_LONGEST_POLL_S = 1.0
"""Short, so that a test does not wait for the last poll."""


@dataclass(frozen=True)
class Fault:
    """An error instead of the answer. With ``done`` the request is carried out all the same."""

    status: int
    body: Any = b""
    done: bool = False
    hang_up: bool = False


class ApiError(Exception):
    """A request that the Bot API refuses."""


_TAGS = {"b", "strong", "i", "em", "u", "s", "del", "code", "pre", "a", "blockquote", "tg-spoiler"}


class _EntityParser(HTMLParser):
    """Reads text as the Bot API does in the parse mode HTML, and refuses what that refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in _TAGS or ("blockquote" in self.open and tag == "blockquote"):
            raise ApiError(f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ApiError(f'Bad Request: can\'t parse entities: Unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.text += data


def _read_text(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message, with the text that a person sees. Refuse a text that is too long."""
    shown = dict(fields)
    if shown.pop("parse_mode", None) == "HTML":
        entities = _EntityParser()
        entities.feed(fields["text"])
        entities.close()
        if entities.open:
            raise ApiError("Bad Request: can't parse entities: Can't find end tag")
        shown |= {"html": fields["text"], "text": entities.text}
    if not shown["text"].strip():
        raise ApiError("Bad Request: message text is empty")
    if len(shown["text"].encode("utf-16-le")) > 2 * 4096:
        raise ApiError("Bad Request: message is too long")
    return shown


def _note(notes: list[Any], note: Any) -> bool:
    notes.append(note)
    return True


class BotApi(LoopbackServer):
    def __init__(self) -> None:
        self.others: dict[str, BotApi] = {}
        """Further bots on the same server, by their tokens."""
        self.sent: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.actions: list[dict[str, Any]] = []
        self.drafts: list[dict[str, Any]] = []
        self.pressed: list[dict[str, Any]] = []
        self.edits: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.offsets: list[int] = []
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._updates: list[dict[str, Any]] = []
        self._next = 1000
        self._changed = threading.Condition()
        super().__init__(_Handler)

    @property
    def url(self) -> str:
        return self.origin

    def stop(self) -> None:
        super().stop()
        with self._changed:
            self._changed.notify_all()

    # Called by tests

    def write(self, text: str | None, *, user=7, chat=None, username=None, name="Ada", **more: Any) -> int:
        """Send a message to the bot, in a group if ``chat`` is given. Return its id."""
        with self._changed:
            self._next += 1
            number = self._next
            sender = {"id": user, "is_bot": False, "first_name": name, **({"username": username} if username else {})}
            where = {"id": chat, "type": "supergroup", "title": "G"} if chat else {"id": user, "type": "private"}
            message = {"message_id": number, "date": int(time.time()), "chat": where, "from": sender, **more}
            if text is not None:
                message["text"] = text
            self._updates.append({"update_id": number, "message": message})
            self._changed.notify_all()
        return number

    def press(self, data: str, *, user: int = 7) -> None:
        """Press a button below the bot's last message."""
        with self._changed:
            self._next += 1
            sender, message = {"id": user, "is_bot": False, "first_name": "Ada"}, self._message(len(self.sent))
            query = {"id": str(self._next), "from": sender, "chat_instance": "1", "message": message, "data": data}
            self._updates.append({"update_id": self._next, "callback_query": query})
            self._changed.notify_all()

    def redeliver(self, update: dict[str, Any]) -> None:
        with self._changed:
            self._updates.append(update)
            self._changed.notify_all()

    @property
    def pending(self) -> list[dict[str, Any]]:
        with self._changed:
            return list(self._updates)

    def fail(self, method: str, status: int, *, retry_after: int | None = None, done: bool = False) -> None:
        body: dict[str, Any] = {"ok": False, "error_code": status, "description": f"Error {status}"}
        if retry_after is not None:
            body["parameters"] = {"retry_after": retry_after}
        self.faults[method].append(Fault(status, body, done))

    def fail_raw(self, method: str, fault: Fault) -> None:
        self.faults[method].append(fault)

    # Called by the bot

    def call(self, method: str, fields: dict[str, Any]) -> Any:
        self.calls.append(method)
        handlers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "getMe": lambda _: BOT,
            "getUpdates": self._get_updates,
            "sendMessage": self._send,
            "sendMessageDraft": lambda fields: _note(self.drafts, _read_text(fields)),
            "answerCallbackQuery": partial(_note, self.pressed),
            "editMessageText": lambda fields: _note(self.edits, _read_text(fields)),
            "sendChatAction": partial(_note, self.actions),
            "getFile": self._find_file,
        }
        return handlers[method](fields) if method in handlers else None

    def _get_updates(self, fields: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the updates from the offset on. The offset confirms older ones, which are dropped."""
        offset, timeout_s = int(fields.get("offset", 0)), float(fields.get("timeout", 0))
        with self._changed:
            self.offsets.append(offset)
            if offset > 0:
                self._updates = [update for update in self._updates if update["update_id"] >= offset]
            self._changed.wait_for(lambda: self._updates or self.stopped.is_set(), min(timeout_s, _LONGEST_POLL_S))
            return list(self._updates[:100])

    def _send(self, fields: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            self.sent.append(_read_text(fields))
            self._changed.notify_all()
            return self._message(len(self.sent))

    def _message(self, number: int) -> dict[str, Any]:
        message = self.sent[number - 1]
        chat = {"id": int(message["chat_id"]), "type": "private"}
        return {"message_id": number, "date": int(time.time()), "chat": chat, "text": message["text"]}

    def _find_file(self, fields: dict[str, Any]) -> dict[str, Any]:
        file_id = fields["file_id"]
        if file_id not in self.files:
            raise ApiError("Bad Request: wrong file_id or the file is temporarily unavailable")
        size = len(self.files[file_id])
        return {"file_id": file_id, "file_unique_id": file_id, "file_size": size, "file_path": f"files/{file_id}"}

    def wait_for_sent(self, count: int, *, patience_s: float = 30.0) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.sent) >= count, patience_s), self.sent
            return [message["text"] for message in self.sent]


class _Handler(LoopbackHandler, BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.read_body()
        if len(body) < int(self.headers["content-length"]):  # the client was killed while sending
            self.close_connection = True
            return
        fields = {name: values[0] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}
        _, token, method = self.path.split("/")
        api = self.server.owner
        if token != f"bot{TOKEN}" and token.removeprefix("bot") in api.others:
            api = api.others[token.removeprefix("bot")]
        elif token != f"bot{TOKEN}":
            self.send(401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
            return
        fault = api.faults[method].popleft() if api.faults[method] else None
        if fault is not None and not fault.done:
            api.calls.append(method)
        try:
            result = api.call(method, fields) if fault is None or fault.done else None
        except ApiError as exc:
            self.send(400, {"ok": False, "error_code": 400, "description": str(exc)})
            return
        if fault is not None and fault.hang_up:
            self.close_connection = True
        elif fault is not None:
            self.send(fault.status, fault.body)
        else:
            self.send(200, {"ok": True, "result": result})

    def do_GET(self) -> None:
        """Serve a file at /file/bot<token>/files/<id>."""
        *_, token, _, file_id = unquote(self.path).split("/")
        content = self.server.owner.files.get(file_id)
        known = token == f"bot{TOKEN}" and content is not None
        self.send(200 if known else 404, content if known and content is not None else b"")
