"""Google's Gemini API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from kept.config import MemorySearch, ProviderKeys
from kept.embedding.base import Calibration, Role
from kept.embedding.remote import RemoteEmbedder, find_account
from kept.errors import BadAnswer

BASE_URL = "https://generativelanguage.googleapis.com/v1beta"
_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


class GeminiEmbedder(RemoteEmbedder):
    provider = "gemini"
    default_model = "gemini-embedding-001"
    known_dims: ClassVar[Mapping[str, int]] = {"gemini-embedding-001": 3072, "text-embedding-004": 768}
    max_items = 100
    # Estimates from published examples, until they are measured: unrelated texts are far from 0 here.
    calibration = Calibration(floor=0.55, ceiling=0.85, weight=0.5)

    @classmethod
    def from_settings(cls, settings: MemorySearch, keys: ProviderKeys) -> GeminiEmbedder:
        account = find_account("gemini", BASE_URL, settings, keys)
        model = settings.model.removeprefix("models/") if settings.model else None
        return cls(account, model=model, dimensions=settings.dimensions)

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def _ask(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        path = self.model_path
        if role == "query" and len(texts) == 1:
            answer = self._post(f"{path}:embedContent", self.request(texts[0], role), role, texts)
            return [_values(_field(answer, "embedding", dict, self._origin))]
        requests = [self.request(text, role) for text in texts]
        answer = self._post(f"{path}:batchEmbedContents", {"requests": requests}, role, texts)
        return [_values(one) for one in _field(answer, "embeddings", list, self._origin)]

    @property
    def model_path(self) -> str:
        return f"/models/{quote(self.model, safe='')}"

    def request(self, text: str, role: Role) -> dict[str, Any]:
        """An EmbedContentRequest."""
        request: dict[str, Any] = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": _TASKS[role],
        }
        if self.dimensions:
            request["outputDimensionality"] = self.dimensions
        return request


def _field(answer: Any, name: str, kind: type, origin: str) -> Any:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind):
        raise BadAnswer(f"{origin} answered without '{name}'.")
    return found


def _values(embedding: Any) -> Any:
    return embedding.get("values") if isinstance(embedding, dict) else None
