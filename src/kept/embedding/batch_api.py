"""The interface of batch APIs, which answer many texts in one file more cheaply, within hours: upload a file, create a
batch of it, poll the batch, download the answers. The modules of the providers implement it, and `kept.index` runs
the jobs."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from kept.base.net import Timeouts
from kept.base.remote_errors import BadAnswer
from kept.base.values import frozen
from kept.embedding.remote import RemoteEmbedder
from kept.errors import WriteFailed

MAX_BYTES = 50_000_000
MAX_OUTPUT_BYTES = 2_000_000_000
MAX_LINE_BYTES = 16_000_000

CALL_TIMEOUTS = Timeouts(60.0, 180.0)
SHORT_TIMEOUTS = Timeouts(10.0, 20.0)
FILE_TIMEOUTS = Timeouts(600.0, 1800.0)

LISTED = 100
"""Number of the newest batches among which a batch is looked for."""


@frozen
class BatchStatus:
    state: Literal["running", "done", "failed"]
    """``failed`` is any end but success: failed, expired, cancelled. Some answers may be there all the same."""
    word: str
    """The provider's own word for the state."""
    reason: str = ""
    files: tuple[str, ...] = ()
    """Files with the answers, the successful ones and the others."""


class BatchApi(ABC):
    """Batch API of one embedder. All methods raise RemoteError. Only `create` costs money; it is never retried."""

    embedder: RemoteEmbedder

    def __init__(self, embedder: RemoteEmbedder) -> None:
        self.embedder = embedder
        self.client = embedder.client
        self.origin = embedder.origin
        self.timeouts = CALL_TIMEOUTS
        """Timeouts of all calls but file transfers."""

    @abstractmethod
    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        """Return the request for one text, as a line of the uploaded file."""

    @abstractmethod
    def upload(self, key: str, content: bytes) -> str:
        """Upload a file and return its id. ``key`` is our own name for it."""

    @abstractmethod
    def create(self, key: str, file_id: str) -> str:
        """Create a batch of an uploaded file, marked with ``key``, and return its id."""

    @abstractmethod
    def find(self, key: str) -> str | None:
        """Return the id of the batch that was created with ``key``, or None."""

    @abstractmethod
    def poll(self, batch_id: str) -> BatchStatus: ...

    @abstractmethod
    def cancel(self, batch_id: str) -> None: ...

    @abstractmethod
    def iter_answers(self, status: BatchStatus) -> Iterator[tuple[str, Any, int]]:
        """Yield the id of a request, its vector as the provider sent it, and its tokens or 0, in any order. Requests
        without a vector are left out, and so are lines that cannot be parsed."""

    def encode(self, custom_id: str, text: str) -> bytes:
        return json.dumps(self.line(custom_id, text), ensure_ascii=False).encode("utf-8", "replace") + b"\n"

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
