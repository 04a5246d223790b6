"""What a batch API is to the rest: a file goes up, a batch is made of it, looked at, and its answers come down."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from kept.embedding.base import Identity
from kept.embedding.remote import RemoteEmbedder
from kept.errors import BadAnswer, WriteFailed
from kept.net import HttpClient, Patience
from kept.values import frozen

MAX_REQUESTS = 10_000
"""Fewer than any provider allows: a smaller batch is done sooner, and one that is lost loses less."""
MAX_BYTES = 50_000_000
MAX_OUTPUT_BYTES = 2_000_000_000
MAX_LINE_BYTES = 16_000_000

PATIENCE = Patience(60.0, 180.0)
HURRY = Patience(10.0, 20.0)
FILES = Patience(600.0, 1800.0)

LIST_PAGE = 20
LIST_PAGES = 10


@frozen
class BatchStatus:
    state: Literal["running", "done", "failed"]
    """``failed`` is whatever ended without being done: failed, expired, cancelled. Some answers may be there."""
    word: str
    """What the provider calls it."""
    reason: str = ""
    files: tuple[str, ...] = ()
    """Where the answers are, the good ones and the others."""


@frozen
class Answer:
    """What came back for one text. ``vector`` is as the provider gave it, or None where it gave none."""

    id: str
    vector: Any
    tokens: int = 0


class BatchApi(ABC):
    """All of its methods raise RemoteError. Only `create` costs money, and it is never tried twice by itself."""

    max_requests: ClassVar[int] = MAX_REQUESTS
    max_bytes: ClassVar[int] = MAX_BYTES

    def __init__(self, embedder: RemoteEmbedder) -> None:
        self.embedder = embedder
        self.patience = PATIENCE
        """With all calls but those that bring files."""

    @property
    def provider(self) -> str:
        return self.embedder.provider

    @property
    def identity(self) -> Identity:
        return self.embedder.identity

    @property
    def client(self) -> HttpClient:
        return self.embedder.client

    @property
    def origin(self) -> str:
        return self.client.endpoint.origin

    @abstractmethod
    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        """The request for one text, as it stands in the file."""

    @abstractmethod
    def upload(self, key: str, content: bytes) -> str:
        """Brings the file there; its id. ``key`` is our own name for it."""

    @abstractmethod
    def create(self, key: str, file_id: str) -> str:
        """Makes a batch of an uploaded file, marked with ``key``; its id."""

    @abstractmethod
    def find(self, key: str, file_id: str) -> str | None:
        """The id of the batch that was made with ``key``, if one was."""

    @abstractmethod
    def poll(self, batch_id: str) -> BatchStatus: ...

    @abstractmethod
    def cancel(self, batch_id: str) -> None: ...

    @abstractmethod
    def iter_answers(self, status: BatchStatus) -> Iterator[Answer]:
        """In whatever order they come. Lines that cannot be understood are left out."""

    def encode(self, custom_id: str, text: str) -> bytes:
        return json.dumps(self.line(custom_id, text), ensure_ascii=False).encode("utf-8", "replace") + b"\n"

    def _iter_lines(self, path: str, *, query: str = "", base: str | None = None) -> Iterator[dict[str, Any]]:
        """The objects in a file of lines, through a temporary file: it may be larger than memory."""
        try:
            with tempfile.TemporaryFile() as file:
                self.client.download(path, file, query=query, base=base, patience=FILES, max_bytes=MAX_OUTPUT_BYTES)
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
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, str) or not found:
        raise BadAnswer(f"{origin} answered without '{name}'.")
    return found


def only_texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(value for value in values if isinstance(value, str) and value)
