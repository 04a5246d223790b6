"""OpenAI's Batch API: POST /files with purpose=batch, POST /batches, GET /batches/{id}, GET /files/{id}/content.

Up to 50,000 requests and 200 MB per batch. The answers come in two files, in any order: `output_file_id` has those
that succeeded, `error_file_id` the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from kept.embedding.batch_api.base import (
    FILE_TIMEOUTS,
    LIST_PAGE,
    LIST_PAGES,
    BatchAnswer,
    BatchApi,
    BatchStatus,
    get_text,
    only_texts,
)
from kept.embedding.openai import OpenAIEmbedder
from kept.embedding.remote import tokens_used
from kept.net.transport import encode_form
from kept.remote_errors import BadAnswer

ENDPOINT = "/v1/embeddings"
_ENDED = ("failed", "expired", "cancelled", "canceled")


class FileBatches(BatchApi):
    """Batch API of OpenAI, and of providers that copy it."""

    window: ClassVar[str]

    def upload(self, key: str, content: bytes) -> str:
        file = (f"{key}.jsonl", content, "application/jsonl")
        body, content_type = encode_form({"purpose": "batch"}, {"file": file})
        answer = self.client.upload("/files", body, content_type=content_type, timeouts=FILE_TIMEOUTS)
        return get_text(answer, "id", self.origin)

    def create(self, key: str, file_id: str) -> str:
        body = {
            "input_file_id": file_id,
            "endpoint": ENDPOINT,
            "completion_window": self.window,
            "metadata": {"kept_job": key},
            **self._batch_parameters(),
        }
        answer = self.client.post_json("/batches", body, timeouts=self.timeouts, attempts=1)
        return get_text(answer, "id", self.origin)

    def _batch_parameters(self) -> dict[str, Any]:
        return {}

    def find(self, key: str, file_id: str) -> str | None:
        after = ""
        for _ in range(LIST_PAGES):
            query = f"limit={LIST_PAGE}" + (f"&after={quote(after, safe='')}" if after else "")
            answer = self.client.get_json("/batches", query=query, timeouts=self.timeouts)
            batches = answer.get("data") if isinstance(answer, dict) else None
            if not isinstance(batches, list):
                raise BadAnswer(f"{self.origin} answered without a list of batches.")
            for batch in batches:
                match batch:
                    case {"id": str(batch_id), "metadata": {"kept_job": mark}} if mark == key:
                        return batch_id
                    case {"id": str(batch_id), "input_file_id": source} if source == file_id:
                        return batch_id
            if not batches or not answer.get("has_more"):
                return None
            after = get_text(batches[-1], "id", self.origin)
        return None

    def poll(self, batch_id: str) -> BatchStatus:
        answer = self.client.get_json(f"/batches/{quote(batch_id, safe='')}", timeouts=self.timeouts)
        word = get_text(answer, "status", self.origin)
        state: Literal["running", "done", "failed"] = "failed" if word in _ENDED else "running"
        files = only_texts((answer.get("output_file_id"), answer.get("error_file_id")))
        return BatchStatus("done" if word == "completed" else state, word, self._reason(answer), files)

    def _reason(self, answer: dict[str, Any]) -> str:
        match answer.get("errors"):
            case {"data": [{"message": str(message)}, *_]}:
                return self.client.clean_message(message)
        return ""

    def cancel(self, batch_id: str) -> None:
        self.client.post_json(f"/batches/{quote(batch_id, safe='')}/cancel", {}, timeouts=self.timeouts)

    def iter_answers(self, status: BatchStatus) -> Iterator[BatchAnswer]:
        for file_id in status.files:
            for line in self._iter_lines(f"/files/{quote(file_id, safe='')}/content"):
                match line:
                    case {"custom_id": str(id_), "response": {"body": {"data": [{"embedding": vector}]} as body}}:
                        yield BatchAnswer(id_, vector, tokens_used(body) or 0)
                    case {"custom_id": str(id_)}:
                        yield BatchAnswer(id_, None)


class OpenAIBatches(FileBatches):
    window = "24h"

    def __init__(self, embedder: OpenAIEmbedder) -> None:
        super().__init__(embedder)
        self._body = embedder.body

    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": self._body([text])}
