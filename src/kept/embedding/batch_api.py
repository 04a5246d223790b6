"""Batch APIs, which answer many texts in one file more cheaply, within hours: upload a file, create a batch of it, poll
the batch, download the answers. `kept.index.batches` runs the jobs.

OpenAI's Batch API is POST /files with purpose=batch, POST /batches, GET /batches/{id} and GET /files/{id}/content. Up
to 50,000 requests and 200 MB per batch; Voyage takes 100,000 and 1 GB. The answers come in two files, in any order:
`output_file_id` has those that succeeded, `error_file_id` the others.

A batch of Gemini is a file through the Files API, `models/…:asyncBatchEmbedContent`, and an operation that is polled.
Up to 2 GB per file. The operation's `metadata` has its state (`BATCH_STATE_…`), its `response` the file of answers, one
per line with the `key` of the request. Files are transferred outside the API's own path: below `/upload` and
`/download`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import quote

from kept.base.limits import as_dict, text_or_empty
from kept.base.net import HttpClient, Timeouts
from kept.base.remote_errors import BadAnswer
from kept.base.values import frozen
from kept.embedding.base import Embedder
from kept.embedding.providers import GeminiEmbedder, OpenAIEmbedder, VoyageEmbedder
from kept.embedding.remote import get_list, tokens_used
from kept.errors import WriteFailed

ENDPOINT = "/v1/embeddings"
MAX_BYTES = 50_000_000
MAX_OUTPUT_BYTES = 2_000_000_000
MAX_LINE_BYTES = 16_000_000

CALL_TIMEOUTS = Timeouts(60.0, 180.0)
SHORT_TIMEOUTS = Timeouts(10.0, 20.0)
FILE_TIMEOUTS = Timeouts(600.0, 1800.0)

_State = Literal["running", "done", "failed"]
_STATES: dict[str, _State] = {
    "completed": "done",
    "failed": "failed",
    "expired": "failed",
    "cancelled": "failed",
    "canceled": "failed",
}
_GEMINI_ENDED = ("FAILED", "CANCELLED", "EXPIRED")
# Number of the newest batches among which a batch is looked for.
LISTED = 100


@frozen
class BatchStatus:
    state: _State
    """``failed`` is any end but success: failed, expired, cancelled. Some answers may be there all the same."""
    word: str
    """The provider's own word for the state."""
    reason: str = ""
    files: tuple[str, ...] = ()
    """Files with the answers, the successful ones and the others."""


def find_batch_api(embedder: Embedder | None) -> BatchApi | None:
    """Return the batch API of an embedder's provider, or None if it has none."""
    match embedder:
        case GeminiEmbedder():
            return GeminiBatches(embedder)
        case VoyageEmbedder():
            return VoyageBatches(embedder)
        case OpenAIEmbedder():
            return BatchApi(embedder)
    return None


class BatchApi:
    """Batch API of one embedder, that of OpenAI. All methods raise RemoteError. Only `create` costs money; it is never
    retried."""

    list_query, list_name, id_name = f"limit={LISTED}", "data", "id"

    def __init__(self, embedder: Any) -> None:
        self.embedder = embedder
        self.client: HttpClient = embedder.client
        self.origin = embedder.origin
        self.timeouts = CALL_TIMEOUTS
        """Timeouts of all calls but file transfers."""

    def upload(self, key: str, content: bytes) -> str:
        """Upload a file and return its id. ``key`` is our own name for it."""
        import httpx

        file = (f"{key}.jsonl", content, "application/jsonl")
        form = httpx.Request("POST", "http://form.invalid", data={"purpose": "batch"}, files={"file": file})
        body, content_type = form.read(), form.headers["content-type"]
        answer = self.client.upload("/files", body, content_type=content_type, timeouts=FILE_TIMEOUTS)
        return get_text(answer, "id", self.origin)

    def create(self, key: str, file_id: str) -> str:
        """Create a batch of an uploaded file, marked with ``key``, and return its id."""
        body = {"input_file_id": file_id, "endpoint": ENDPOINT, "metadata": {"kept_job": key}, **self.parameters()}
        answer = self.client.post_json("/batches", body, timeouts=self.timeouts, attempts=1)
        return get_text(answer, "id", self.origin)

    def parameters(self) -> dict[str, Any]:
        """Return how long a batch may take, and what its requests have in common."""
        return {"completion_window": "24h"}

    def find(self, key: str) -> str | None:
        """Return the id of the batch that was created with ``key``, or None."""
        answer = self.client.get_json("/batches", query=self.list_query, timeouts=self.timeouts)
        # Without a batch, Gemini has no list either.
        for batch in get_list(answer, self.list_name, self.origin) if answer else ():
            if key in as_dict(as_dict(batch).get("metadata")).values():
                return get_text(batch, self.id_name, self.origin)
        return None

    def poll(self, batch_id: str) -> BatchStatus:
        answer = self.client.get_json(f"/batches/{quote(batch_id, safe='')}", timeouts=self.timeouts)
        word = get_text(answer, "status", self.origin)
        reason = ""
        match answer.get("errors"):
            case {"data": [{"message": str(message)}, *_]}:
                reason = self.client.clean_message(message)
        files = only_texts((answer.get("output_file_id"), answer.get("error_file_id")))
        return BatchStatus(_STATES.get(word, "running"), word, reason, files)

    def cancel(self, batch_id: str) -> None:
        self.client.post_json(f"/batches/{quote(batch_id, safe='')}/cancel", {}, timeouts=self.timeouts)

    def iter_answers(self, status: BatchStatus) -> Iterator[tuple[str, Any, int]]:
        """Yield the id of a request, its vector as the provider sent it, and its tokens or 0, in any order. Requests
        without a vector are left out, and so are lines that cannot be parsed."""
        lines = (line for name in status.files for line in self.iter_file(name))
        return filter(None, map(self.read_answer, lines))

    def iter_file(self, name: str) -> Iterator[dict[str, Any]]:
        return self._iter_lines(f"/files/{quote(name, safe='')}/content")

    def read_answer(self, line: dict[str, Any]) -> tuple[str, Any, int] | None:
        match line:
            case {"custom_id": str(id_), "response": {"body": {"data": [{"embedding": vector}]} as body}}:
                return id_, vector, tokens_used(body) or 0
        return None

    def encode(self, custom_id: str, text: str) -> bytes:
        """Return the request for one text, as a line of the file of a batch."""
        line = json.dumps(self.request(custom_id, text), ensure_ascii=False)
        return line.encode("utf-8", "replace") + b"\n"

    def request(self, custom_id: str, text: str) -> dict[str, Any]:
        body = {**self.embedder.parameters("document"), "input": [text]}
        return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}

    def _iter_lines(self, path: str, *, query: str = "", base: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the objects of a JSONL file, through a temporary file: it may be larger than memory."""
        try:
            with tempfile.TemporaryFile() as file:
                self.client.download(
                    path, file, query=query, base=base, timeouts=FILE_TIMEOUTS, max_bytes=MAX_OUTPUT_BYTES
                )
                file.seek(0)
                while raw := file.readline(MAX_LINE_BYTES):
                    try:
                        line = json.loads(raw)
                    except (ValueError, RecursionError):  # such as a piece of a line that is too long
                        continue
                    if isinstance(line, dict):
                        yield line
        except OSError as exc:
            raise WriteFailed(f"The answers of a batch could not be stored ({exc.strerror}).") from exc


def get_text(answer: Any, name: str, origin: str) -> str:
    """Return a field of an answer that has to be a text. Raise BadAnswer if it is not."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, str) or not value:
        raise BadAnswer(f"{origin} answered without '{name}'.")
    return value


def only_texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str) and value)


class VoyageBatches(BatchApi):
    """Batch API of Voyage. Model and type of the input are given once for the whole batch."""

    def parameters(self) -> dict[str, Any]:
        return {"completion_window": "12h", "request_params": self.embedder.parameters("document")}

    def request(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "body": {"input": [text]}}


class GeminiBatches(BatchApi):
    embedder: GeminiEmbedder
    list_query, list_name, id_name = f"pageSize={LISTED}", "operations", "name"

    def upload(self, key: str, content: bytes) -> str:
        body, content_type = encode_related(key, content)
        answer = self.client.upload(
            "/files",
            body,
            content_type=content_type,
            headers={"x-goog-upload-protocol": "multipart"},
            base=self._transfer_path("upload"),
            timeouts=FILE_TIMEOUTS,
        )
        return get_text(answer.get("file") if isinstance(answer, dict) else None, "name", self.origin)

    def create(self, key: str, file_id: str) -> str:
        batch = {"displayName": key, "inputConfig": {"fileName": file_id}}
        path = f"{self.embedder.model_path}:asyncBatchEmbedContent"
        answer = self.client.post_json(path, {"batch": batch}, timeouts=self.timeouts, attempts=1)
        return get_text(answer, "name", self.origin)

    def poll(self, batch_id: str) -> BatchStatus:
        answer = as_dict(self.client.get_json(f"/{quote(batch_id)}", timeouts=self.timeouts))
        metadata = as_dict(answer.get("metadata"))
        word = str(metadata.get("state") or "").rpartition("STATE_")[2]
        error = as_dict(answer.get("error"))
        outputs = as_dict(answer.get("response")), as_dict(metadata.get("output"))
        files = only_texts(output.get("responsesFile") for output in outputs)[:1]
        if error or word in _GEMINI_ENDED:
            reason = self.client.clean_message(text_or_empty(error.get("message")))
            return BatchStatus("failed", (word or "FAILED").lower(), reason, files)
        if word == "SUCCEEDED" or (answer.get("done") is True and not word):
            return BatchStatus("done", "succeeded", files=files)
        return BatchStatus("running", (word or "PENDING").lower())

    def cancel(self, batch_id: str) -> None:
        self.client.post_json(f"/{quote(batch_id)}:cancel", {}, timeouts=self.timeouts)

    def request(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"key": custom_id, "request": self.embedder.request_body(text, "document")}

    def iter_file(self, name: str) -> Iterator[dict[str, Any]]:
        return self._iter_lines(f"/{quote(name)}:download", query="alt=media", base=self._transfer_path("download"))

    def read_answer(self, line: dict[str, Any]) -> tuple[str, Any, int] | None:
        match line:
            case {"key": str(id_), "response": {"embedding": {"values": values}} as response}:
                return id_, values, tokens_used(response) or 0
        return None

    def _transfer_path(self, direction: Literal["upload", "download"]) -> str:
        """Return the path for files: `/upload/v1beta` for an API at `/v1beta`, keeping anything in front of it."""
        prefix, _, version = self.client.endpoint.path.rpartition("/")
        return f"{prefix}/{direction}/{version}"


def encode_related(key: str, content: bytes) -> tuple[bytes, str]:
    """Return a description and its file in one body, and the content type.

    Google's upload takes multipart/related, which httpx cannot encode: its `files=` makes form data.
    """
    boundary = f"kept-{os.urandom(16).hex()}"
    description = json.dumps({"file": {"displayName": key, "mimeType": "application/jsonl"}})
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=utf-8\r\n\r\n{description}\r\n"
        f"--{boundary}\r\nContent-Type: application/jsonl\r\n\r\n"
    )
    return head.encode() + content + f"\r\n--{boundary}--".encode(), f"multipart/related; boundary={boundary}"
