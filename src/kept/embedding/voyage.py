"""Voyage AI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.embedding.base import Calibration, Role
from kept.embedding.openai import order_by_index
from kept.embedding.remote import RemoteEmbedder


class VoyageEmbedder(RemoteEmbedder):
    """Embedder of Voyage, which itself cuts texts that are too long (its `truncation` is on by default)."""

    provider = "voyage"
    home_url = "https://api.voyageai.com/v1"
    default_model = "voyage-4-large"
    known_dims: ClassVar[Mapping[str, int]] = {
        "voyage-4-large": 1024,
        "voyage-4": 1024,
        "voyage-4-lite": 1024,
        "voyage-3-large": 1024,
        "voyage-3.5": 1024,
        "voyage-3.5-lite": 1024,
        "voyage-3": 1024,
        "voyage-3-lite": 512,
        "voyage-code-3": 1024,
        "voyage-finance-2": 1024,
        "voyage-law-2": 1024,
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.25, ceiling=0.75, weight=0.5)

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        body = {**self.parameters(role), "input": list(texts)}
        return order_by_index(self._post("/embeddings", body, role, texts), len(texts), self.origin)

    def parameters(self, role: Role) -> dict[str, Any]:
        """Return a request without its texts."""
        parameters: dict[str, Any] = {"model": self.model, "input_type": role}
        if self.dimensions:
            parameters["output_dimension"] = self.dimensions
        return parameters
