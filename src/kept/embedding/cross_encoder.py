"""A cross-encoder in a folder: an ONNX model that reads a question and a passage together and says how well they fit.

It sees what two vectors cannot, and cannot be asked beforehand: every passage is read anew for every question. The
model is fed one pair at a time. A batch would cost as much, and the time that is left could be looked at less often.
"""

from __future__ import annotations

import math
import os
import threading
from functools import cached_property
from typing import Any

from kept.embedding.local_model import get_onnx_files, model_name, require_packages
from kept.embedding.onnx_session import first_line, open_session, open_tokenizer, wanted_inputs
from kept.errors import EmbedderUnavailable, EmbeddingFailed

_LOGITS = "logits"
_MAX_TOKENS = 512
_MOST_CHARS = 20_000
"""Longer than any text that fits: tokenizing megabytes to keep 512 tokens would cost more than the model."""

# Such models give texts that have nothing to do with each other about -11, a plain answer more than 0, and a passage
# that answers in other words something in between. This spreads that over the range from 0 to 1.
_MIDDLE = -5.0
_SPREAD = 2.5


class CrossEncoder:
    """Nothing is loaded until the first question. Safe to share between threads."""

    def __init__(self, model_path: str) -> None:
        path = os.path.abspath(os.path.expanduser(model_path))
        self._setting = "memory_search.query.rerank.model_path"
        if not os.path.exists(path):
            raise EmbedderUnavailable(f"There is no model at {path}.", hint=f"Check {self._setting}.")
        require_packages("onnxruntime", "tokenizers", extra="onnx")
        self._files = get_onnx_files(path)
        self._loading = threading.Lock()

    @property
    def name(self) -> str:
        return model_name(self._files.folder)

    def load(self) -> None:
        """Reads the model, where that is not done yet."""
        with self._loading:
            _ = self._tokenizer, self._inputs, self._output

    def score(self, query: str, passage: str) -> float:
        """How well a passage answers a question, from 0 to 1."""
        self.load()
        try:
            out = self._run(_encodable(query), _encodable(passage))
        except Exception as exc:  # neither library raises anything more particular
            raise EmbeddingFailed(f"{self._files.model}: the model failed ({first_line(exc)}).") from exc
        if len(out) not in (1, 2) or any(map(math.isnan, out)):
            raise EmbeddingFailed(f"{self._files.model}: the model gave something that is no judgement.")
        logit = out[-1] - out[0] if len(out) == 2 else out[0]  # two classes: "does not fit" and "fits"
        return 1 / (1 + math.exp(-(min(max(logit, -100.0), 100.0) - _MIDDLE) / _SPREAD))

    def _run(self, query: str, passage: str) -> list[float]:
        import numpy as np

        pair = self._tokenizer.encode(query, passage)
        offered = {
            "input_ids": pair.ids,
            "attention_mask": [1] * len(pair.ids),
            "token_type_ids": pair.type_ids,
            "position_ids": list(range(len(pair.ids))),
        }
        feed = {name: np.array([offered[name]], dtype=dtype) for name, dtype in self._inputs.items()}
        out: list[float] = self._session.run([self._output], feed)[0].astype(np.float32).ravel().tolist()
        return out

    # the files

    @cached_property
    def _session(self) -> Any:
        try:
            return open_session(self._files.model)
        except Exception as exc:
            raise self._unusable(self._files.model, first_line(exc)) from exc

    @cached_property
    def _inputs(self) -> dict[str, str]:
        try:
            return wanted_inputs(self._session)
        except ValueError as exc:
            raise self._unusable(self._files.model, first_line(exc)) from exc

    @cached_property
    def _output(self) -> str:
        """The output that is one number, or two, for each pair."""
        for output in self._session.get_outputs():
            width = output.shape[-1] if len(output.shape) == 2 else 1 if len(output.shape) == 1 else 0
            if width in (1, 2) or (output.name == _LOGITS and not isinstance(width, int)):
                return str(output.name)
        raise self._unusable(self._files.model, "none of its outputs is one number for a pair: it is no cross-encoder")

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            tokenizer = open_tokenizer(self._files.tokenizer, _MAX_TOKENS)
        except Exception as exc:  # the library raises nothing more particular
            raise self._unusable(self._files.tokenizer, first_line(exc)) from exc
        return tokenizer

    def _unusable(self, path: str, reason: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"The model for reranking cannot be used ({path}: {reason}).",
            hint=f"Fetch the model's files again, or set {self._setting} to another.",
        )


def _encodable(text: str) -> str:
    return text[:_MOST_CHARS].encode("utf-8", "replace").decode()
