"""Embedding providers on loopback: real HTTP, the documented wire formats, and faults.

A server checks each request as its provider does and answers with vectors of hashed words, so that search results rank.
`faults` replaces the answers to the next requests, one fault each. `always` replaces all of them.
"""

import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

KEY = "sk-test-0123456789abcdef"


def bag(text: str, dims: int) -> list[float]:
    values = [0.0] * dims
    for word in re.findall(r"\w+", text.lower()):
        digest = hashlib.sha256(word.encode()).digest()
        values[int.from_bytes(digest[:4], "big") % dims] += 1.0 if digest[4] % 2 else -1.0
    return values


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    method: str = "POST"


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Refused(Exception):
    """The request does not follow the provider's documentation."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Fault = Callable[["Handler", Request], None]


class Handler(LoopbackHandler, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        raw = self.read_body()
        self._serve(raw if self.headers["content-type"].startswith("multipart/") else json.loads(raw))

    def _serve(self, body: Any) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, body, self.command)
        provider = self.server.owner
        with provider.lock:
            provider.requests.append(request)
            fault = provider.faults.popleft() if provider.faults else provider.always
        if fault is not None:
            fault(self, request)
        else:
            self.reply(provider.answer(request))

    def reply(self, reply: Reply) -> None:
        self.send(reply.status, reply.body, reply.headers)


class Provider(LoopbackServer):
    """Base class of the servers. Subclasses have the documented behaviour: `check_and_embed` and `error`."""

    path = ""
    dims = 64

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.refuses: Callable[[str], bool] = lambda text: False
        self.most_chars: int | None = None
        self.lock = threading.Lock()
        super().__init__(Handler)

    @property
    def base_url(self) -> str:
        return self.origin + self.path

    def answer(self, request: Request) -> Reply:
        try:
            return Reply(200, self.check_and_embed(request))
        except Refused as exc:
            return Reply(exc.status, self.error(exc.status, str(exc)))

    def vectors(self, texts: list[str], dims: int | None = None) -> list[list[float]]:
        require(all(isinstance(text, str) and text.strip() for text in texts), 400, "Input cannot be an empty string.")
        chars = sum(map(len, texts))
        if self.most_chars is not None and chars > self.most_chars:
            raise Refused(400, f"This model's maximum context length is 8192 tokens, however you requested {chars}.")
        require(not any(map(self.refuses, texts)), 400, "Invalid input: this text is not welcome.")
        return [bag(text, dims or self.dims) for text in texts]

    def texts(self) -> list[str]:
        """Return every text that a client sent."""
        return [text for request in self.requests for text in self.texts_of(request.body)]

    def texts_of(self, body: Any) -> list[str]:
        return list(body["input"])


def require(condition: object, status: int, message: str) -> None:
    if not condition:
        raise Refused(status, message)


def only(body: dict[str, Any], *names: str) -> None:
    strange = set(body) - set(names)
    require(not strange, 400, f"Unrecognized request argument supplied: {', '.join(sorted(strange))}")


class OpenAI(Provider):
    path = "/v1"
    dims = 1536
    key: str | None = KEY

    def error(self, status: int, message: str) -> Any:
        code = {401: "invalid_api_key", 404: "model_not_found"}.get(status)
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}

    def check_and_embed(self, request: Request) -> Any:
        body = request.body
        require(request.path == "/v1/embeddings", 404, f"Invalid URL (POST {request.path})")
        if self.key is not None:
            sent = request.headers.get("authorization", "")
            require(sent == f"Bearer {self.key}", 401, f"Incorrect API key provided: {sent.removeprefix('Bearer ')}.")
        only(body, "model", "input", "encoding_format", "dimensions", "user")
        require(body.get("encoding_format") == "float", 400, "encoding_format must be float")
        require(len(body["input"]) <= 2048, 400, "Any array must be 2048 dimensions or less")
        vectors = self.vectors(body["input"], body.get("dimensions"))
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        data.reverse()  # the order is not guaranteed; clients must use the index
        usage = {"prompt_tokens": 8, "total_tokens": 8}
        return {"object": "list", "data": data, "model": body["model"], "usage": usage}


class Voyage(Provider):
    path = "/v1"
    dims = 1024

    def error(self, status: int, message: str) -> Any:
        return {"detail": message}

    def check_and_embed(self, request: Request) -> Any:
        body = request.body
        require(request.path == "/v1/embeddings", 404, "Not Found")
        require(request.headers.get("authorization") == f"Bearer {KEY}", 401, "Provided API key is invalid.")
        only(body, "model", "input", "input_type", "truncation", "output_dimension", "output_dtype", "encoding_format")
        require(body["input_type"] in ("query", "document"), 400, "input_type must be query or document")
        require(len(body["input"]) <= 1000, 400, "The batch size limit is 1000.")
        vectors = self.vectors(body["input"], body.get("output_dimension"))
        data = [{"object": "embedding", "embedding": vector, "index": at} for at, vector in enumerate(vectors)]
        return {"object": "list", "data": data, "model": body["model"], "usage": {"total_tokens": 8}}


class Gemini(Provider):
    path = "/v1beta"
    dims = 3072

    def error(self, status: int, message: str) -> Any:
        return {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}

    def check_and_embed(self, request: Request) -> Any:
        found = re.fullmatch(r"/v1beta/(models/[\w.-]+):batchEmbedContents", request.path)
        require(found, 404, f"Requested entity was not found: {request.path}")
        require("key=" not in request.path, 400, "the key belongs into a header")
        key = request.headers.get("x-goog-api-key")
        require(key == KEY, 400, "API key not valid. Please pass a valid API key.")  # 400, as documented
        only(request.body, "requests")
        requests = request.body["requests"]
        require(len(requests) <= 100, 400, "at most 100 requests can be in one batch")
        return {"embeddings": [{"values": self._embed(one, found[1])} for one in requests]}

    def _embed(self, body: Any, model: str) -> list[float]:
        only(body, "model", "content", "taskType", "title", "outputDimensionality")
        require(body["model"] == model, 400, "model must be that of the address")
        require(body["taskType"] in ("RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT"), 400, "unknown task")
        (part,) = body["content"]["parts"]
        return self.vectors([part["text"]], body.get("outputDimensionality"))[0]

    def texts_of(self, body: Any) -> list[str]:
        return [one["content"]["parts"][0]["text"] for one in body.get("requests", [body])]


class Ollama(Provider):
    dims = 768
    model = "nomic-embed-text"

    def error(self, status: int, message: str) -> Any:
        return {"error": message}

    def answer(self, request: Request) -> Reply:
        if request.path != "/api/embed":
            return Reply(404, b"404 page not found", (("content-type", "text/plain"),))
        return super().answer(request)

    def check_and_embed(self, request: Request) -> Any:
        body = request.body
        model = body["model"]
        require(model.partition(":")[0] == self.model, 404, f'model "{model}" not found, try pulling it first')
        only(body, "model", "input", "truncate", "dimensions", "options", "keep_alive")
        vectors = self.vectors(body["input"], body.get("dimensions"))
        return {"model": model, "embeddings": vectors, "total_duration": 1}


# Faults


def says(status: int, body: Any = b"", **headers: str) -> Fault:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return lambda handler, request: handler.reply(Reply(status, body, named))


def bad_gateway(handler: Handler, request: Request) -> None:
    page = b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>nginx</h1></body></html>"
    handler.reply(Reply(502, page, (("content-type", "text/html"),)))


def hangs(handler: Handler, request: Request) -> None:
    """Send nothing until the server stops or ten seconds have passed."""
    handler.server.owner.stopped.wait(10)
    handler.break_off()


def drips(handler: Handler, request: Request) -> None:
    """Send the body a byte at a time, without end."""
    handler.send_response(200)
    handler.send_header("content-length", "1000000")
    handler.end_headers()
    while not handler.server.owner.stopped.wait(0.01):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def breaks_off(handler: Handler, request: Request) -> None:
    """Reset the connection in the middle of the answer."""
    whole = handler.server.owner.answer(request).encoded()
    handler.send_response(200)
    handler.send_header("content-length", str(len(whole)))
    handler.end_headers()
    handler.wfile.write(whole[: len(whole) // 2])
    handler.wfile.flush()
    handler.break_off()


def dies(handler: Handler, request: Request) -> None:
    """Stop the server: reset this connection and refuse later ones."""
    provider = handler.server.owner
    provider.always = dies
    provider.stop()
    handler.break_off()


def changed(change: Callable[[list[Any]], Any]) -> Fault:
    """Return a fault that sends the right answer with its list of vectors changed."""

    def fault(handler: Handler, request: Request) -> None:
        body = handler.server.owner.answer(request).body
        for name in ("data", "embeddings"):
            if name in body:
                body[name] = change(body[name])
        handler.reply(Reply(200, body))

    return fault
