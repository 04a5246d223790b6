"""Opens an ONNX model and its tokenizer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kept.embedding.local_model import OnnxFiles
from kept.remote_errors import EmbedderUnavailable
from kept.values import frozen

_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_DTYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_MAX_THREADS = 4


@frozen
class LoadedModel:
    session: Any
    tokenizer: Any
    dtypes: dict[str, str]
    """The model's inputs, and the type of number that each one takes."""

    def run(self, output: str, inputs: Mapping[str, Any]) -> Any:
        """Return one output as float32. The inputs that the model does not take are dropped."""
        import numpy as np

        feed = {name: np.asarray(inputs[name], dtype=dtype) for name, dtype in self.dtypes.items()}
        return self.session.run([output], feed)[0].astype(np.float32)


class OnnxModel:
    """A model that is loaded by the first call to `load`. Thread-safe.

    ``setting`` names the model in errors. ``threads`` is the number of threads per text; None means half the cores, at
    most four.
    """

    def __init__(
        self,
        files: OnnxFiles,
        *,
        max_tokens: int,
        setting: str,
        threads: int | None = None,
    ) -> None:
        self._files = files
        self._max_tokens = max_tokens
        self._setting = setting
        self._threads = threads
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None
        self._is_optimised = False

    def load(self, *, optimise: bool = True) -> LoadedModel:
        """Return the model. Optimising it costs as much as twenty queries, so a single query does without."""
        with self._lock:  # several threads may call this at once
            if self._loaded is None or (optimise and not self._is_optimised):
                tokenizer = self._loaded.tokenizer if self._loaded else self._open_tokenizer()
                opener = partial(open_session, threads=self._threads, optimise=optimise)
                session = self._open(self._files.model, opener)
                self._loaded = LoadedModel(session, tokenizer, self._read_inputs(session))
                self._is_optimised = optimise
            return self._loaded

    def unusable(self, path: str, reason: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"The model cannot be used ({path}: {reason}).",
            hint=f"Fetch the model's files again, or set {self._setting} to another.",
        )

    def _open_tokenizer(self) -> Any:
        return self._open(self._files.tokenizer, partial(open_tokenizer, max_tokens=self._max_tokens))

    def _open(self, path: str, opener: Callable[[str], Any]) -> Any:
        try:
            return opener(path)
        except Exception as exc:  # neither library raises anything more specific
            raise self.unusable(path, first_line(exc)) from exc

    def _read_inputs(self, session: Any) -> dict[str, str]:
        dtypes = {model_input.name: _DTYPES.get(model_input.type, "int64") for model_input in session.get_inputs()}
        unknown = [name for name in dtypes if name not in _INPUTS]
        if unknown:
            raise self.unusable(self._files.model, f"it needs an input named {unknown[0]}")
        return dtypes


def open_session(path: str, *, threads: int | None = None, optimise: bool = True) -> Any:
    """Open a model, by default on half the cores and at most four. Errors of the runtime pass through."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads must not burn CPU
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def open_tokenizer(path: str, *, max_tokens: int) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0].rstrip(".") or type(exc).__name__
