"""OpenAI, and every server that speaks its protocol: LM Studio, vLLM, llama.cpp, Mistral and others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.embedding.base import Calibration, Role
from kept.embedding.remote import RemoteEmbedder
from kept.limits import is_count
from kept.remote_errors import BadAnswer


class OpenAIEmbedder(RemoteEmbedder):
    provider = "openai"
    home_url = "https://api.openai.com/v1"
    default_model = "text-embedding-3-small"
    known_dims: ClassVar[Mapping[str, int]] = {
        "text-embedding-3-small": 1536,
        "text-embedding-3-large": 3072,
        "text-embedding-ada-002": 1536,
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.15, ceiling=0.65, weight=0.5)

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        return order_by_index(self._post("/embeddings", self.body(texts), role, texts), len(texts), self.origin)

    def body(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return the body of a request."""
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return body


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
