"""Embedders of providers: OpenAI, every server that speaks its protocol (LM Studio, vLLM, llama.cpp, Mistral and
others), Voyage AI, whose protocol is nearly the same, Gemini and Ollama. And their batches.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import quote

from kept.base.limits import as_dict, is_count, text_or_empty
from kept.base.net import ProviderAccount, Timeouts, parse_endpoint
from kept.base.remote_errors import BadAnswer, EmbedderUnavailable, EndpointDown, RemoteError
from kept.config import MemorySearchSettings, ProviderKeys
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
    if len(entries) != count or all("index" not in entry for entry in entries):
        return [entry.get("embedding") for entry in entries]  # whose number the caller checks
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


_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}
_GEMINI_ENDED = ("FAILED", "CANCELLED", "EXPIRED")


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

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        requests = [self.request_body(text, role) for text in texts]
        answer = self._post(f"{self.model_path}:batchEmbedContents", {"requests": requests}, role, texts)
        embeddings = get_list(answer, "embeddings", self.origin)
        return [get_list(embedding, "values", self.origin) for embedding in embeddings]

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
        if error or word in _GEMINI_ENDED:
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


_PORT = 11434
_PREFIXES: dict[str, dict[Role, str]] = {
    "nomic-embed-text": {"query": "search_query: ", "document": "search_document: "},
}
"""Prefixes that a model was trained with. Ollama does not add them."""
_REACHABLE_TIMEOUTS = Timeouts(1.0, 1.0)


class OllamaEmbedder(RemoteEmbedder):
    provider = "ollama"
    home_url = f"http://127.0.0.1:{_PORT}"
    default_model = "nomic-embed-text"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "nomic-embed-text": KnownModel(768),
        "mxbai-embed-large": KnownModel(1024),
        "all-minilm": KnownModel(384),
        "bge-m3": KnownModel(1024),
        "embeddinggemma": KnownModel(768),
    }
    is_free = True
    # Estimated for nomic-embed-text from published examples, not measured.
    calibration = Calibration(floor=0.45, ceiling=0.85, weight=0.5)

    @classmethod
    def _account(cls, settings: MemorySearchSettings, keys: ProviderKeys) -> ProviderAccount:
        remote = settings.remote
        url = remote.base_url or cls.home_url
        if keys.ollama_host and not remote.base_url:
            url = host_url(keys.ollama_host)
            parse_endpoint(url, setting="OLLAMA_HOST")
        return ProviderAccount(url, remote.api_key, remote.headers)

    def check_reachable(self) -> None:
        try:
            self.client.get_json("/api/version", timeouts=_REACHABLE_TIMEOUTS)
        except EndpointDown as exc:
            raise EmbedderUnavailable(
                f"No server answers at {self.origin}: start it with 'ollama serve', or set OLLAMA_HOST or"
                " memory_search.remote.base_url."
            ) from exc
        except RemoteError:
            pass  # a server that refuses the request is running

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        prefix = _PREFIXES.get(self.model.partition(":")[0], {}).get(role, "")
        prefixed = [prefix + text for text in texts]
        body: dict[str, Any] = {"model": self.model, "input": prefixed}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return get_list(self._post("/api/embed", body, role, prefixed), "embeddings", self.origin)

    def _not_found_hint(self) -> str:
        return f"Get the model with 'ollama pull {self.model}', or check memory_search.remote.base_url."


def host_url(host: str) -> str:
    """Return the address that OLLAMA_HOST means.

    It may be a host, a port or both, and names the address a server listens on, such as 0.0.0.0, rather than the one
    a client connects to.
    """
    scheme, has_scheme, rest = host.rpartition("://")
    name, slash, path = rest.partition("/")
    bare, colon, port = name.rpartition(":")
    if not colon or port.endswith("]"):
        bare, port = name, ""
    bare = "127.0.0.1" if bare in ("", "0.0.0.0", "[::]") else bare
    # With a scheme, a missing port is the scheme's default, as in Ollama's own client.
    port = port or ("" if has_scheme else str(_PORT))
    return f"{scheme or 'http'}://{bare}{':' + port if port else ''}{slash}{path}"
