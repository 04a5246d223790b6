"""ONNX models in a folder, through onnxruntime (the extra `kept[neural]`): the embedder of `kept models`, and a
cross-encoder that judges a question with a passage."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from kept.base.limits import utf8_safe
from kept.base.records import Matrix
from kept.base.remote_errors import EmbedderUnavailable, EmbeddingFailed
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.model_catalogue import require_packages, sample_digest

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_MAX_TOKENS = 512
# More than fits into 512 tokens. Tokenizing megabytes to keep these would cost more than the model.
_MAX_CHARS = 20_000
_MAX_THREADS = 4


class OnnxModel:
    """A model in a folder, which is loaded by the first call to `load`. Thread-safe.

    ``threads`` is the number of threads per text; None means half the cores, at most four.
    """

    def __init__(self, folder: str, *, threads: int | None = None) -> None:
        self.path = os.path.join(folder, "model.onnx")
        self.tokenizer_path = os.path.join(folder, "tokenizer.json")
        for path in (self.path, self.tokenizer_path):
            if not os.path.isfile(path):
                hint = "Download one: kept models pull NAME; or check memory_search.query.rerank.model_path."
                raise EmbedderUnavailable(f"There is no model at {path}.", hint=hint)
        require_packages("onnxruntime", "tokenizers", extra="neural")
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None
        """The session and the tokenizer."""

    def load(self) -> tuple[Any, Any]:
        """Return the model and its tokenizer."""
        with self._lock:  # several threads may call this at once
            if self._loaded is None:
                session = _open(self.path, partial(open_session, threads=self._threads))
                self._loaded = session, _open(self.tokenizer_path, open_tokenizer)
            return self._loaded

    def run(self, *texts: str) -> Any:
        """Return the first output for a text, or for a pair of texts, as float32."""
        import numpy as np

        session, tokenizer = self.load()
        try:
            tokens = tokenizer.encode(*(utf8_safe(text[:_MAX_CHARS]) for text in texts))
            values = zip(_INPUTS, (tokens.ids, [1] * len(tokens.ids), tokens.type_ids), strict=True)
            names = {model_input.name for model_input in session.get_inputs()}
            feed = {name: np.asarray([numbers], dtype=np.int64) for name, numbers in values if name in names}
            return session.run(None, feed)[0][0].astype(np.float32)
        except Exception as exc:  # neither library raises anything more specific
            raise EmbeddingFailed(f"{self.path}: the model failed ({_first_line(exc)}).") from exc


def _open(path: str, opener: Callable[[str], Any]) -> Any:
    try:
        return opener(path)
    except Exception as exc:  # neither library raises anything more specific
        raise EmbedderUnavailable(
            f"The model cannot be used ({path}: {_first_line(exc)}).",
            hint="Fetch it again: kept models remove NAME, then kept models pull NAME.",
        ) from exc


def open_session(path: str, *, threads: int | None = None) -> Any:
    """Open a model, by default on half the cores and at most four. Errors of the runtime pass through."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads must not burn CPU
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    unknown = [model_input.name for model_input in session.get_inputs() if model_input.name not in _INPUTS]
    if unknown:
        raise ValueError(f"it needs an input named {unknown[0]}")
    return session


def open_tokenizer(path: str) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_TOKENS)
    return tokenizer


def _first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0].rstrip(".") or type(exc).__name__


# embedding

_LAST_LATIN = "\u024f"


class OnnxEmbedder:
    """Embedder whose vectors are those of a text's first token. The model is loaded by the first text.

    It gets one text at a time. A model with dynamic int8 quantisation scales its numbers by the content of a batch, so
    that a text's vector would depend on its neighbours (cosine 0.992 for bge-small), and on a CPU a batch costs more.
    Each core computes texts of its own: that scales, whereas several threads on one short text mostly wait.

    A query in a script that an English model cannot read has no vector, so words alone answer it. The model's vectors
    of such texts are hardly about their content: recall@10 fell from 0.98 to 0.87 on Thai notes, to 0.95 on Chinese.
    """

    is_slow = True

    def __init__(
        self, folder: str, *, dims: int, calibration: Calibration, query_prefix: str = "", languages: Sequence[str] = ()
    ) -> None:
        self.languages = tuple(languages)
        self.calibration = calibration
        self._folder = folder
        self._dims = dims
        self._query_prefix = query_prefix
        self._model = OnnxModel(folder, threads=1)

    @cached_property
    def identity(self) -> Identity:
        weights = sample_digest((self._model.path, self._model.tokenizer_path))
        recipe = (weights, "cls", self._query_prefix, "", str(_MAX_TOKENS))
        fingerprint = hashlib.sha256("\n".join(recipe).encode()).hexdigest()
        return Identity("local", os.path.basename(self._folder), self._dims, f"onnx-1:{fingerprint}")

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        if role == "query" and self.languages == ("en",) and all(map(_is_other_script, texts)):
            return pack_unit_rows(([0.0] * self._dims for _ in texts), self._dims)
        prefix = self._query_prefix if role == "query" else ""
        prefixed = [prefix + text for text in texts]
        if len(texts) < 2:
            return pack_unit_rows(map(self._run, prefixed), self._dims)
        from concurrent.futures import ThreadPoolExecutor  # several texts share the cores

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ThreadPoolExecutor(cores) as pool:
            return pack_unit_rows(pool.map(self._run, prefixed), self._dims)

    def _run(self, text: str) -> list[float]:
        vector: list[float] = self._model.run(text)[0].tolist()
        return vector


def _is_other_script(text: str) -> bool:
    """Return whether most letters of a text are not Latin."""
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character > _LAST_LATIN for character in letters) > len(letters)


# reranking

# These models give unrelated texts about -11, a plain answer more than 0, and a passage that answers in other words
# something in between. The logistic curve with this middle and spread maps that to the range from 0 to 1.
_MIDDLE = -5.0
_SPREAD = 2.5


class CrossEncoder:
    """A model that reads a question and a passage together and judges how well they fit. Thread-safe.

    It sees what two separate vectors cannot, but nothing can be computed beforehand: every passage is read again for
    every question. It reads one pair at a time. A batch would cost as much, and the remaining time could be checked
    less often.
    """

    def __init__(self, model_path: str) -> None:
        self._model = OnnxModel(os.path.abspath(os.path.expanduser(model_path)))

    def load(self) -> None:
        """Load the model, unless that is done."""
        self._model.load()

    def score(self, query: str, passage: str) -> float:
        """Return how well a passage answers a question, from 0 to 1."""
        logits: list[float] = self._model.run(query, passage).ravel().tolist()
        if len(logits) != 1 or math.isnan(logits[0]):
            raise EmbeddingFailed(f"{self._model.path}: the output of the model is not a judgement.")
        return 1 / (1 + math.exp(-(min(max(logits[0], -100.0), 100.0) - _MIDDLE) / _SPREAD))
