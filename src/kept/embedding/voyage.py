"""Voyage AI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.config import MemorySearch, ProviderKeys
from kept.embedding.base import Calibration, Role
from kept.embedding.openai import rows_by_index
from kept.embedding.remote import RemoteEmbedder, find_account

BASE_URL = "https://api.voyageai.com/v1"


class VoyageEmbedder(RemoteEmbedder):
    """Texts that are too long are cut there (its `truncation` is on unless it is told otherwise)."""

    provider = "voyage"
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
    # Estimates from published examples, until they are measured.
    calibration = Calibration(floor=0.25, ceiling=0.75, weight=0.5)

    @classmethod
    def from_settings(cls, settings: MemorySearch, keys: ProviderKeys) -> VoyageEmbedder:
        account = find_account("voyage", BASE_URL, settings, keys)
        return cls(account, model=settings.model, dimensions=settings.dimensions)

    def _ask(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        body = {**self.parameters(role), "input": list(texts)}
        return rows_by_index(self._post("/embeddings", body, role, texts), len(texts), self._origin)

    def parameters(self, role: Role) -> dict[str, Any]:
        """All of a request but its texts."""
        parameters: dict[str, Any] = {"model": self.model, "input_type": role}
        if self.dimensions:
            parameters["output_dimension"] = self.dimensions
        return parameters
