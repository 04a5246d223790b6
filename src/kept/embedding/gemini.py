"""Google's Gemini API, and its batches.

A batch is a file through the Files API, `models/…:asyncBatchEmbedContent`, and an operation that is polled. Up to 2 GB
per file. The operation's `metadata` has its state (`BATCH_STATE_…`), its `response` the file of answers, one per line
with the `key` of the request. Files are transferred outside the API's own path: below `/upload` and `/download`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from kept.base.limits import as_dict, text_or_empty
from kept.embedding.base import Calibration, Role
from kept.embedding.batch_api import (
    FILE_TIMEOUTS,
    LISTED,
    BatchApi,
    BatchStatus,
    get_text,
    only_texts,
)
from kept.embedding.remote import KnownModel, RemoteEmbedder, get_list, tokens_used

_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}
_ENDED = ("FAILED", "CANCELLED", "EXPIRED")


class GeminiEmbedder(RemoteEmbedder):
    provider = "gemini"
    home_url = "https://generativelanguage.googleapis.com/v1beta"
    default_model = "gemini-embedding-001"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "gemini-embedding-001": KnownModel(3072, 0.15),
        "text-embedding-004": KnownModel(768),
    }
    max_texts = 100
    # Estimated from published examples, not measured: unrelated texts are far from 0 here.
    calibration = Calibration(floor=0.55, ceiling=0.85, weight=0.5)

    @staticmethod
    def _normalise_model(name: str) -> str:
        return name.removeprefix("models/")  # as Google's documentation writes names

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        path = self.model_path
        if role == "query" and len(texts) == 1:
            answer = self._post(f"{path}:embedContent", self.request_body(texts[0], role), role, texts)
            return [_values(as_dict(answer).get("embedding"), self.origin)]
        requests = [self.request_body(text, role) for text in texts]
        answer = self._post(f"{path}:batchEmbedContents", {"requests": requests}, role, texts)
        return [_values(embedding, self.origin) for embedding in get_list(answer, "embeddings", self.origin)]

    def batches(self) -> BatchApi:
        return GeminiBatches(self)

    @property
    def model_path(self) -> str:
        return f"/models/{quote(self.model, safe='')}"

    def request_body(self, text: str, role: Role) -> dict[str, Any]:
        """Return an EmbedContentRequest."""
        body: dict[str, Any] = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": _TASKS[role],
        }
        if self.dimensions:
            body["outputDimensionality"] = self.dimensions
        return body


def _values(embedding: Any, origin: str) -> list[Any]:
    return get_list(embedding, "values", origin)


# batches


class GeminiBatches(BatchApi):
    """Batches of an embedder."""

    embedder: GeminiEmbedder

    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"key": custom_id, "request": self.embedder.request_body(text, "document")}

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

    def find(self, key: str) -> str | None:
        answer = self.client.get_json("/batches", query=f"pageSize={LISTED}", timeouts=self.timeouts)
        # Without a batch there is no list either.
        for operation in get_list(answer, "operations", self.origin) if answer else ():
            match operation:
                case {"name": str(name), "metadata": {"displayName": mark}} if mark == key:
                    return name
        return None

    def poll(self, batch_id: str) -> BatchStatus:
        answer = as_dict(self.client.get_json(f"/{quote(batch_id)}", timeouts=self.timeouts))
        metadata = as_dict(answer.get("metadata"))
        word = str(metadata.get("state") or "").rpartition("STATE_")[2]
        error = as_dict(answer.get("error"))
        outputs = as_dict(answer.get("response")), as_dict(metadata.get("output"))
        files = only_texts(output.get("responsesFile") for output in outputs)[:1]
        if error or word in _ENDED:
            reason = self.client.clean_message(text_or_empty(error.get("message")))
            return BatchStatus("failed", (word or "FAILED").lower(), reason, files)
        if word == "SUCCEEDED" or (answer.get("done") is True and not word):
            return BatchStatus("done", "succeeded", files=files)
        return BatchStatus("running", (word or "PENDING").lower())

    def cancel(self, batch_id: str) -> None:
        self.client.post_json(f"/{quote(batch_id)}:cancel", {}, timeouts=self.timeouts)

    def iter_answers(self, status: BatchStatus) -> Iterator[tuple[str, Any, int]]:
        for name in status.files:
            path = f"/{quote(name)}:download"
            for line in self._iter_lines(path, query="alt=media", base=self._transfer_path("download")):
                match line:
                    case {"key": str(id_), "response": {"embedding": {"values": values}} as response}:
                        yield id_, values, tokens_used(response) or 0

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
