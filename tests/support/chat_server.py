"""A chat model on loopback: real HTTP, Anthropic's and OpenAI's wire formats, whole and streamed, and faults.

    with ModelServer() as server:
        server.script(Says("Looking.", Call("memory_search", {"query": "parrot"})), Says("It is green."))
        ...                                # base_url is server.anthropic_url or server.openai_url
        server.chats[0].body               # the request

`script` queues answers for the next chats, one each. `otherwise` answers the rest; it may be a function of the request.
Other requests (lists of models, token counts) get the documented answer and are recorded in `requests` only.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

ANTHROPIC, OPENAI = "/v1/messages", "/v1/chat/completions"


@dataclass(frozen=True)
class Call:
    """A tool call. ``arguments`` given as text are sent unchanged, valid or not."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def json(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Says:
    """A text followed by tool calls, streamed in pieces.

    ``thought`` comes first, signed, in Anthropic's format. ``stop`` is the provider's stop reason.
    ``usage`` is input tokens, output tokens, and input tokens from the cache.
    """

    def __init__(self, text="", *calls: Call, stop=None, usage=(100, 20, 0), piece_chars=7, thought="") -> None:
        self.text, self.calls, self.thought = text, calls, thought
        self.stop, self.usage, self.piece_chars = stop, usage, piece_chars


@dataclass(frozen=True)
class Fails:
    """An HTTP error."""

    status: int
    body: Any = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Stalls:
    """Send the text, then nothing until the client or the server stops. ``pings`` keep the connection alive."""

    text: str = ""
    pings: bool = False


@dataclass(frozen=True)
class Breaks:
    """Send the text, then reset the connection, or with ``in_order`` close it."""

    text: str = ""
    in_order: bool = False


@dataclass(frozen=True)
class Raw:
    """These lines as the stream, for invalid data. ``endless`` repeats them until the client hangs up."""

    lines: tuple[str, ...]
    endless: bool = False
    encoding: str = ""


@dataclass(frozen=True)
class ErrorEvent:
    """Some text, then an error event in a stream that began with status 200."""

    text: str
    type: str
    message: str


Answer = Says | Fails | Stalls | Breaks | Raw | ErrorEvent


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Any


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openai_error(message: str, *, kind: str = "invalid_request_error", code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class ModelServer(LoopbackServer):
    def __init__(self, *, key: str | None = None) -> None:
        self.key = key
        """The only accepted key; None accepts every request."""
        self.requests: list[Request] = []
        self.answers: deque[Answer] = deque()
        self.otherwise: Answer | Callable[[Request], Answer] = Says("Fine.")
        self.lock = threading.Lock()
        self.chatted = threading.Condition(self.lock)
        super().__init__(_Handler)

    def script(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    @property
    def anthropic_url(self) -> str:
        return self.origin

    @property
    def openai_url(self) -> str:
        return self.anthropic_url + "/v1"

    @property
    def chats(self) -> list[Request]:
        return [request for request in self.requests if request.path.partition("?")[0] in (ANTHROPIC, OPENAI)]

    def wait_for_chats(self, count: int, timeout_s: float = 30) -> list[Request]:
        with self.chatted:
            assert self.chatted.wait_for(lambda: len(self.chats) >= count, timeout_s), "nobody asked"
        return self.chats

    def next_answer(self, request: Request) -> Answer:
        with self.lock:
            if self.answers:
                return self.answers.popleft()
        return self.otherwise(request) if callable(self.otherwise) else self.otherwise


class _Handler(LoopbackHandler, BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._note(None)
        self.send(200)

    def do_GET(self) -> None:
        self._note(None)
        self.send(200, {"data": [], "object": "list", "has_more": False})

    def do_POST(self) -> None:
        raw = self.read_body()
        try:
            body = json.loads(raw)
        except ValueError:
            body = raw
        request = self._note(body)
        path = request.path.partition("?")[0]
        if path == ANTHROPIC + "/count_tokens":
            self.send(200, {"input_tokens": len(raw) // 4})
        elif path not in (ANTHROPIC, OPENAI):
            self.send(404, openai_error(f"Invalid URL (POST {self.path})"))
        elif not self._is_known(request):
            self._refuse(path)
        else:
            self._answer(request, _Anthropic(body) if path == ANTHROPIC else _OpenAI(body))

    def _note(self, body: Any) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        with self.server.owner.chatted:
            self.server.owner.requests.append(request)
            self.server.owner.chatted.notify_all()
        return request

    def _is_known(self, request: Request) -> bool:
        sent = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        return self.server.owner.key in (None, sent)

    def _refuse(self, path: str) -> None:
        if path == ANTHROPIC:
            self.send(401, anthropic_error("authentication_error", "invalid x-api-key"))
        else:
            self.send(401, openai_error("Incorrect API key provided.", code="invalid_api_key"))

    def _answer(self, request: Request, wire: _Wire) -> None:
        answer = self.server.owner.next_answer(request)
        match answer:
            case Fails(status, body, headers):
                self.send(status, body, headers)
            case Says() if not request.body.get("stream"):
                self.send(200, wire.whole(answer))
            case Says():
                self._stream([*wire.start(answer), *wire.content(answer), *wire.end(answer)])
            case Raw():
                self._stream_raw(answer)
            case ErrorEvent(text):
                self._stream([*wire.start(Says()), *wire.content(Says(text)), wire.error(answer)])
            case Stalls(text, pings):
                self._stream([*wire.start(Says()), *wire.content(Says(text))], end=False)
                while not self.server.owner.stopped.wait(0.02 if pings else 10):
                    self._chunk(wire.ping() if pings else "")
                self.break_off()
            case Breaks(text, in_order):
                self._stream([*wire.start(Says()), *wire.content(Says(text))], end=in_order)
                if not in_order:
                    self.break_off()

    def _stream_raw(self, answer: Raw) -> None:
        if not answer.endless:
            self._stream([line + "\n\n" for line in answer.lines])
            return
        self._stream([], end=False, encoding=answer.encoding)
        while not self.server.owner.stopped.is_set():
            self._chunk("".join(answer.lines))

    def _stream(self, events: list[str], *, end: bool = True, encoding: str = "") -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        if encoding:
            self.send_header("content-encoding", encoding)
        self.end_headers()
        for event in events:
            self._chunk(event)
        if end:
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: str) -> None:
        data = event.encode("utf-8", "surrogatepass")
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


class _Wire:
    """The wire format of one provider."""

    def __init__(self, body: Any) -> None:
        self.model = body.get("model", "")


class _Anthropic(_Wire):
    def whole(self, says: Says) -> Any:
        content: list[Any] = [{"type": "text", "text": says.text}] if says.text else []
        content += [{"type": "tool_use", "id": i, "name": c.name, "input": json.loads(c.json)} for i, c in _ids(says)]
        return {**self._message(), "content": content, "stop_reason": self._stop(says), "usage": self._usage(says)}

    def start(self, says: Says) -> list[str]:
        usage = {**self._usage(says), "output_tokens": 1}
        message = {**self._message(), "content": [], "stop_reason": None, "usage": usage}
        return [self._event("message_start", message=message), self.ping()]

    def content(self, says: Says) -> list[str]:
        events: list[str] = []
        first = 0
        if says.thought:
            pieces = _pieces(says.thought, says.piece_chars)
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            deltas.append({"type": "signature_delta", "signature": f"signed:{says.thought}"})
            events += self._block(0, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
            first = 1
        if says.text:
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(says.text, says.piece_chars)]
            events += self._block(first, {"type": "text", "text": ""}, deltas)
            first += 1
        for at, (call_id, call) in enumerate(_ids(says), first):
            block = {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}
            pieces = ["", *_pieces(call.json, says.piece_chars)]
            events += self._block(at, block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
        return events

    def end(self, says: Says) -> list[str]:
        delta = {"stop_reason": self._stop(says), "stop_sequence": None}
        last = self._event("message_delta", delta=delta, usage={"output_tokens": says.usage[1]})
        return [last, self._event("message_stop")]

    def error(self, fault: ErrorEvent) -> str:
        return self._event("error", error={"type": fault.type, "message": fault.message})

    def ping(self) -> str:
        return self._event("ping")

    def _message(self) -> dict[str, Any]:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "stop_sequence": None}

    def _usage(self, says: Says) -> dict[str, int]:
        read, said, cached = says.usage
        cache = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        fresh = read - cached if cached else read  # what is no number is sent as it is
        return {"input_tokens": fresh, "output_tokens": said, **cache}

    def _stop(self, says: Says) -> str:
        return says.stop or ("tool_use" if says.calls else "end_turn")

    def _block(self, at: int, block: Any, deltas: list[Any]) -> list[str]:
        start = self._event("content_block_start", index=at, content_block=block)
        inner = [self._event("content_block_delta", index=at, delta=delta) for delta in deltas]
        return [start, *inner, self._event("content_block_stop", index=at)]

    def _event(self, kind: str, **fields: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


class _OpenAI(_Wire):
    def whole(self, says: Says) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": says.text or None}
        if says.calls:
            message["tool_calls"] = [self._call(i, c) for i, c in _ids(says)]
        choice = {"index": 0, "message": message, "finish_reason": self._stop(says)}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage(says)}

    def start(self, says: Says) -> list[str]:
        return [self._delta({"role": "assistant", "content": ""})]

    def content(self, says: Says) -> list[str]:
        events = [self._delta({"content": piece}) for piece in _pieces(says.text, says.piece_chars)]
        for at, (call_id, call) in enumerate(_ids(says)):
            opening = {"index": at, **self._call(call_id, Call(call.name, ""))}
            pieces = [{"index": at, "function": {"arguments": p}} for p in _pieces(call.json, says.piece_chars)]
            events += [self._delta({"tool_calls": [piece]}) for piece in (opening, *pieces)]
        return events

    def end(self, says: Says) -> list[str]:
        usage = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage(says)}
        return [self._delta({}, self._stop(says)), self._data(usage), "data: [DONE]\n\n"]

    def error(self, fault: ErrorEvent) -> str:
        return self._data(openai_error(fault.message, kind=fault.type))

    def ping(self) -> str:
        return ": ping\n\n"

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": self.model}

    def _delta(self, delta: Any, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._data({**self._envelope("chat.completion.chunk"), "choices": [choice]})

    def _call(self, call_id: str, call: Call) -> dict[str, Any]:
        return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.json}}

    def _usage(self, says: Says) -> dict[str, Any]:
        read, said, cached = says.usage
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": 0, **details}

    def _stop(self, says: Says) -> str:
        return says.stop or ("tool_calls" if says.calls else "stop")

    def _data(self, value: Any) -> str:
        return f"data: {json.dumps(value)}\n\n"


def _ids(says: Says) -> list[tuple[str, Call]]:
    return [(call.id or f"call_{at}", call) for at, call in enumerate(says.calls, 1)]
