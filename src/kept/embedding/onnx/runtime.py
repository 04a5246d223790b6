"""Opens an ONNX model and its tokenizer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kept.embedding.local_model import OnnxFiles
from kept.errors import EmbedderUnavailable
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

    ``unusable`` makes the error for a file that cannot be used, from its path and the reason.
    """

    def __init__(
        self, files: OnnxFiles, *, max_tokens: int, unusable: Callable[[str, str], EmbedderUnavailable]
    ) -> None:
        self._files = files
        self._max_tokens = max_tokens
        self._unusable = unusable
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None

    def load(self) -> LoadedModel:
        with self._lock:  # several threads may come first
            if self._loaded is None:
                tokenizer = self._open(self._files.tokenizer, partial(open_tokenizer, max_tokens=self._max_tokens))
                session = self._open(self._files.model, open_session)
                self._loaded = LoadedModel(session, tokenizer, self._read_inputs(session))
            return self._loaded

    def _open(self, path: str, opener: Callable[[str], Any]) -> Any:
        try:
            return opener(path)
        except Exception as exc:  # neither library raises anything more specific
            raise self._unusable(path, first_line(exc)) from exc

    def _read_inputs(self, session: Any) -> dict[str, str]:
        dtypes = {model_input.name: _DTYPES.get(model_input.type, "int64") for model_input in session.get_inputs()}
        unknown = [name for name in dtypes if name not in _INPUTS]
        if unknown:
            raise self._unusable(self._files.model, f"it needs an input named {unknown[0]}")
        return dtypes


def open_session(path: str) -> Any:
    """Open a model on half the cores. Errors of the runtime pass through."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))
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
