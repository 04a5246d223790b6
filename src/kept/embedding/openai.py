"""OpenAI, and every server that speaks its language: LM Studio, vLLM, llama.cpp, Mistral and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.config import MemorySearch, ProviderKeys
from kept.embedding.base import Calibration, Role
from kept.embedding.remote import RemoteEmbedder, find_account
from kept.errors import BadAnswer
from kept.limits import is_count

BASE_URL = "https://api.openai.com/v1"


class OpenAIEmbedder(RemoteEmbedder):
    provider = "openai"
    default_model = "text-embedding-3-small"
    known_dims: ClassVar[Mapping[str, int]] = {
        "text-embedding-3-small": 1536,
        "text-embedding-3-large": 3072,
        "text-embedding-ada-002": 1536,
    }
    # Estimates from published examples, until they are measured.
    calibration = Calibration(floor=0.15, ceiling=0.65, weight=0.5)

    @classmethod
    def from_settings(cls, settings: MemorySearch, keys: ProviderKeys) -> OpenAIEmbedder:
        account = find_account("openai", BASE_URL, settings, keys)
        return cls(account, model=settings.model, dimensions=settings.dimensions)

    def _ask(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        return rows_by_index(self._post("/embeddings", self.body(texts), role, texts), len(texts), self._origin)

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        """What the endpoint is sent."""
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return body


def rows_by_index(answer: Any, count: int, origin: str) -> list[Any]:
    """The vectors of `data`, in the order of their `index`. Servers that leave it out keep the order of the texts."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise BadAnswer(f"{origin} answered without a list of embeddings.")
    if len(data) != count:
        raise BadAnswer(f"{origin} gave {len(data)} vectors for {count} texts.")
    if all("index" not in one for one in data):
        return [one.get("embedding") for one in data]
    by_index = {one["index"]: one.get("embedding") for one in data if is_count(one.get("index"))}
    if set(by_index) != set(range(count)):
        raise BadAnswer(f"{origin} gave vectors that cannot be matched to their texts.")
    return [by_index[at] for at in range(count)]
