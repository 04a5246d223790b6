"""OpenAI's Batch API: POST /files with purpose=batch, POST /batches, GET /batches/{id}, GET /files/{id}/content.

Up to 50,000 requests and 200 MB a batch. The answers stand in two files, in any order: `output_file_id` holds those
that worked, `error_file_id` the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from kept.embedding.batch_api.base import (
    FILES,
    LIST_PAGE,
    LIST_PAGES,
    Answer,
    BatchApi,
    BatchStatus,
    get_text,
    only_texts,
)
from kept.embedding.openai import OpenAIEmbedder
from kept.embedding.remote import tokens_used
from kept.errors import BadAnswer

ENDPOINT = "/v1/embeddings"
_ENDED = ("failed", "expired", "cancelled", "canceled")


class FileBatches(BatchApi):
    """What OpenAI and those who follow it have in common."""

    window: ClassVar[str]

    def upload(self, key: str, content: bytes) -> str:
        body, content_type = form(key, content)
        answer = self.client.upload("/files", body, content_type=content_type, patience=FILES)
        return get_text(answer, "id", self.origin)

    def create(self, key: str, file_id: str) -> str:
        body = {
            "input_file_id": file_id,
            "endpoint": ENDPOINT,
            "completion_window": self.window,
            "metadata": {"kept_job": key},
            **self._batch_parameters(),
        }
        answer = self.client.post_json("/batches", body, patience=self.patience, tries=1)
        return get_text(answer, "id", self.origin)

    def _batch_parameters(self) -> dict[str, Any]:
        return {}

    def find(self, key: str, file_id: str) -> str | None:
        after = ""
        for _ in range(LIST_PAGES):
            query = f"limit={LIST_PAGE}" + (f"&after={quote(after, safe='')}" if after else "")
            answer = self.client.get_json("/batches", query=query, patience=self.patience)
            batches = answer.get("data") if isinstance(answer, dict) else None
            if not isinstance(batches, list):
                raise BadAnswer(f"{self.origin} answered without a list of batches.")
            for batch in batches:
                match batch:
                    case {"id": str(found), "metadata": {"kept_job": mark}} if mark == key:
                        return found
                    case {"id": str(found), "input_file_id": source} if source == file_id:
                        return found
            if not batches or not answer.get("has_more"):
                return None
            after = get_text(batches[-1], "id", self.origin)
        return None

    def poll(self, batch_id: str) -> BatchStatus:
        answer = self.client.get_json(f"/batches/{quote(batch_id, safe='')}", patience=self.patience)
        word = get_text(answer, "status", self.origin)
        state: Literal["running", "done", "failed"] = "failed" if word in _ENDED else "running"
        files = only_texts((answer.get("output_file_id"), answer.get("error_file_id")))
        return BatchStatus("done" if word == "completed" else state, word, self._reason(answer), files)

    def _reason(self, answer: dict[str, Any]) -> str:
        match answer.get("errors"):
            case {"data": [{"message": str(message)}, *_]}:
                return self.client.say(message)
        return ""

    def cancel(self, batch_id: str) -> None:
        self.client.post_json(f"/batches/{quote(batch_id, safe='')}/cancel", {}, patience=self.patience)

    def iter_answers(self, status: BatchStatus) -> Iterator[Answer]:
        for file_id in status.files:
            for line in self._iter_lines(f"/files/{quote(file_id, safe='')}/content"):
                match line:
                    case {"custom_id": str(id_), "response": {"body": {"data": [{"embedding": vector}]} as body}}:
                        yield Answer(id_, vector, tokens_used(body) or 0)
                    case {"custom_id": str(id_)}:
                        yield Answer(id_, None)


class OpenAIBatches(FileBatches):
    window = "24h"

    def __init__(self, embedder: OpenAIEmbedder) -> None:
        super().__init__(embedder)
        self._body = embedder.body

    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": self._body([text])}


def form(key: str, content: bytes) -> tuple[bytes, str]:
    """A multipart form with the purpose and the file, and its type."""
    boundary = f"kept-{os.urandom(16).hex()}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{key}.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    tail = f"\r\n--{boundary}--\r\n"
    return head.encode() + content + tail.encode(), f"multipart/form-data; boundary={boundary}"
