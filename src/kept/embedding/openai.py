"""OpenAI, every server that speaks its protocol (LM Studio, vLLM, llama.cpp, Mistral and others), and Voyage AI, whose
protocol is nearly the same. And their batches.

OpenAI's Batch API is POST /files with purpose=batch, POST /batches, GET /batches/{id} and GET /files/{id}/content. Up
to 50,000 requests and 200 MB per batch; Voyage takes 100,000 and 1 GB. The answers come in two files, in any order:
`output_file_id` has those that succeeded, `error_file_id` the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from kept.base.limits import is_count
from kept.base.remote_errors import BadAnswer
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

ENDPOINT = "/v1/embeddings"
_ENDED = ("failed", "expired", "cancelled", "canceled")


class OpenAIEmbedder(RemoteEmbedder):
    provider = "openai"
    home_url = "https://api.openai.com/v1"
    default_model = "text-embedding-3-small"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "text-embedding-3-small": KnownModel(1536, 0.02),
        "text-embedding-3-large": KnownModel(3072, 0.13),
        "text-embedding-ada-002": KnownModel(1536, 0.10),
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.15, ceiling=0.65, weight=0.5)

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        body = {**self.parameters(role), "input": list(texts)}
        return order_by_index(self._post("/embeddings", body, role, texts), len(texts), self.origin)

    def parameters(self, role: Role) -> dict[str, Any]:
        """Return a request without its texts."""
        size = {"dimensions": self.dimensions} if self.dimensions else {}
        return {"model": self.model, "encoding_format": "float", **size}

    # batches

    batch_window = "24h"

    def batches(self) -> BatchApi:
        return FileBatches(self)

    def batch_line(self, custom_id: str, text: str) -> dict[str, Any]:
        body = {**self.parameters("document"), "input": [text]}
        return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}

    def batch_parameters(self) -> dict[str, Any]:
        return {}


class VoyageEmbedder(OpenAIEmbedder):
    """Embedder of Voyage, which itself cuts texts that are too long (its `truncation` is on by default)."""

    provider = "voyage"
    home_url = "https://api.voyageai.com/v1"
    default_model = "voyage-4-large"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "voyage-4-large": KnownModel(1024, 0.12),
        "voyage-4": KnownModel(1024, 0.06),
        "voyage-4-lite": KnownModel(1024, 0.02),
        "voyage-3-large": KnownModel(1024, 0.18),
        "voyage-3.5": KnownModel(1024, 0.06),
        "voyage-3.5-lite": KnownModel(1024, 0.02),
        "voyage-code-3": KnownModel(1024),
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.25, ceiling=0.75, weight=0.5)

    def parameters(self, role: Role) -> dict[str, Any]:
        size = {"output_dimension": self.dimensions} if self.dimensions else {}
        return {"model": self.model, "input_type": role, **size}

    # batches: model and input type are given once for the whole batch

    batch_window = "12h"

    def batch_line(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "body": {"input": [text]}}

    def batch_parameters(self) -> dict[str, Any]:
        return {"request_params": self.parameters("document")}


def order_by_index(answer: Any, count: int, origin: str) -> list[Any]:
    """Return the vectors of `data` in the order of their `index`. Servers that omit it keep the order of the texts."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadAnswer(f"{origin} answered without a list of embeddings.")
    if len(entries) != count:
        raise BadAnswer(f"{origin} gave {len(entries)} vectors for {count} texts.")
    if all("index" not in entry for entry in entries):
        return [entry.get("embedding") for entry in entries]
    by_index = {entry["index"]: entry.get("embedding") for entry in entries if is_count(entry.get("index"))}
    if set(by_index) != set(range(count)):
        raise BadAnswer(f"{origin} gave vectors that cannot be matched to their texts.")
    return [by_index[index] for index in range(count)]


# batches


class FileBatches(BatchApi):
    """Batch API of OpenAI and of Voyage."""

    embedder: OpenAIEmbedder

    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        return self.embedder.batch_line(custom_id, text)

    def upload(self, key: str, content: bytes) -> str:
        import httpx

        file = (f"{key}.jsonl", content, "application/jsonl")
        form = httpx.Request("POST", "http://form.invalid", data={"purpose": "batch"}, files={"file": file})
        body, content_type = form.read(), form.headers["content-type"]
        answer = self.client.upload("/files", body, content_type=content_type, timeouts=FILE_TIMEOUTS)
        return get_text(answer, "id", self.origin)

    def create(self, key: str, file_id: str) -> str:
        body = {
            "input_file_id": file_id,
            "endpoint": ENDPOINT,
            "completion_window": self.embedder.batch_window,
            "metadata": {"kept_job": key},
            **self.embedder.batch_parameters(),
        }
        answer = self.client.post_json("/batches", body, timeouts=self.timeouts, attempts=1)
        return get_text(answer, "id", self.origin)

    def find(self, key: str) -> str | None:
        answer = self.client.get_json("/batches", query=f"limit={LISTED}", timeouts=self.timeouts)
        for batch in get_list(answer, "data", self.origin):
            match batch:
                case {"id": str(batch_id), "metadata": {"kept_job": mark}} if mark == key:
                    return batch_id
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

    def iter_answers(self, status: BatchStatus) -> Iterator[tuple[str, Any, int]]:
        for file_id in status.files:
            for line in self._iter_lines(f"/files/{quote(file_id, safe='')}/content"):
                match line:
                    case {"custom_id": str(id_), "response": {"body": {"data": [{"embedding": vector}]} as body}}:
                        yield id_, vector, tokens_used(body) or 0
