"""Voyage's Batch API. It is OpenAI's, except that model and input type are given once for the whole batch.

Up to 100,000 inputs and 1 GB per batch, within twelve hours.
"""

from __future__ import annotations

from typing import Any

from kept.embedding.batch_api.openai import FileBatches
from kept.embedding.voyage import VoyageEmbedder


class VoyageBatches(FileBatches):
    window = "12h"

    def __init__(self, embedder: VoyageEmbedder) -> None:
        super().__init__(embedder)
        self._parameters = embedder.parameters

    def line(self, custom_id: str, text: str) -> dict[str, Any]:
        return {"custom_id": custom_id, "body": {"input": [text]}}

    def _batch_parameters(self) -> dict[str, Any]:
        return {"request_params": self._parameters("document")}
