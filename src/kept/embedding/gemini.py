"""Google's Gemini API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from kept.embedding.base import Calibration, Role
from kept.embedding.remote import RemoteEmbedder, get_list
from kept.remote_errors import BadAnswer

_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


class GeminiEmbedder(RemoteEmbedder):
    provider = "gemini"
    home_url = "https://generativelanguage.googleapis.com/v1beta"
    default_model = "gemini-embedding-001"
    known_dims: ClassVar[Mapping[str, int]] = {"gemini-embedding-001": 3072, "text-embedding-004": 768}
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
            embedding = answer.get("embedding") if isinstance(answer, dict) else None
            if not isinstance(embedding, dict):
                raise BadAnswer(f"{self.origin} answered without 'embedding'.")
            return [_values(embedding)]
        requests = [self.request_body(text, role) for text in texts]
        answer = self._post(f"{path}:batchEmbedContents", {"requests": requests}, role, texts)
        return [_values(embedding) for embedding in get_list(answer, "embeddings", self.origin)]

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


def _values(embedding: Any) -> Any:
    return embedding.get("values") if isinstance(embedding, dict) else None
