"""A cross-encoder: an ONNX model that reads a question and a passage together and judges how well they fit.

It sees what two separate vectors cannot, but nothing can be computed beforehand: every passage is read again for every
question. It reads one pair at a time. A batch would cost as much, and the remaining time could be checked less often.
"""

from __future__ import annotations

import math
import os

from kept.embedding.local_model import encodable, get_onnx_files, model_name, require_packages
from kept.embedding.onnx.runtime import LoadedModel, OnnxModel, first_line
from kept.remote_errors import EmbedderUnavailable, EmbeddingFailed

_SETTING = "memory_search.query.rerank.model_path"
_LOGITS = "logits"
_MAX_TOKENS = 512
_MAX_CHARS = 20_000
"""More than fits into 512 tokens."""

# These models give unrelated texts about -11, a plain answer more than 0, and a passage that answers in other words
# something in between. The logistic curve with this middle and spread maps that to the range from 0 to 1.
_MIDDLE = -5.0
_SPREAD = 2.5


class CrossEncoder:
    """A reranking model. It is loaded by the first question. Thread-safe."""

    def __init__(self, model_path: str) -> None:
        path = os.path.abspath(os.path.expanduser(model_path))
        if not os.path.exists(path):
            raise EmbedderUnavailable(f"There is no model at {path}.", hint=f"Check {_SETTING}.")
        require_packages("onnxruntime", "tokenizers", extra="neural")
        self._files = get_onnx_files(path)
        self._model = OnnxModel(self._files, max_tokens=_MAX_TOKENS, setting=_SETTING)
        self._output = ""

    @property
    def name(self) -> str:
        return model_name(self._files.folder)

    def load(self) -> None:
        """Load the model, unless that is done."""
        self._load()

    def _load(self) -> LoadedModel:
        model = self._model.load()
        self._output = self._output or self._choose_output(model)
        return model

    def score(self, query: str, passage: str) -> float:
        """Return how well a passage answers a question, from 0 to 1."""
        model = self._load()
        try:
            logits = self._run(model, query, passage)
        except Exception as exc:  # neither library raises anything more specific
            raise EmbeddingFailed(f"{self._files.model}: the model failed ({first_line(exc)}).") from exc
        if len(logits) not in (1, 2) or any(map(math.isnan, logits)):
            raise EmbeddingFailed(f"{self._files.model}: the output of the model is not a judgement.")
        logit = logits[-1] - logits[0] if len(logits) == 2 else logits[0]  # two classes: "does not fit" and "fits"
        return 1 / (1 + math.exp(-(min(max(logit, -100.0), 100.0) - _MIDDLE) / _SPREAD))

    def _run(self, model: LoadedModel, query: str, passage: str) -> list[float]:
        pair = model.tokenizer.encode(*(encodable(text, max_chars=_MAX_CHARS) for text in (query, passage)))
        inputs = {
            "input_ids": [pair.ids],
            "attention_mask": [[1] * len(pair.ids)],
            "token_type_ids": [pair.type_ids],
            "position_ids": [list(range(len(pair.ids)))],
        }
        logits: list[float] = model.run(self._output, inputs).ravel().tolist()
        return logits

    def _choose_output(self, model: LoadedModel) -> str:
        """Return the name of the output with one or two numbers for a pair."""
        for output in model.session.get_outputs():
            width = output.shape[-1] if len(output.shape) == 2 else 1 if len(output.shape) == 1 else 0
            if width in (1, 2) or (output.name == _LOGITS and not isinstance(width, int)):
                return str(output.name)
        raise self._model.unusable(
            self._files.model, "none of its outputs is one number for a pair: it is not a cross-encoder"
        )
