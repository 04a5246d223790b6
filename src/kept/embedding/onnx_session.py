"""How any ONNX model is opened and fed, whatever it is for."""

from __future__ import annotations

import os
from typing import Any

INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
_DTYPES = {"tensor(int64)": "int64", "tensor(int32)": "int32"}
_MAX_THREADS = 4


def open_session(path: str) -> Any:
    """The model, on half the cores. Raises whatever the runtime raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting threads must not burn CPU
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def wanted_inputs(session: Any) -> dict[str, str]:
    """The inputs that a model takes, and the kind of number each one is."""
    wanted = {given.name: _DTYPES.get(given.type, "int64") for given in session.get_inputs()}
    unknown = [name for name in wanted if name not in INPUTS]
    if unknown:
        raise ValueError(f"it wants an input named {unknown[0]}")
    return wanted


def open_tokenizer(path: str, max_tokens: int) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def first_line(exc: Exception) -> str:
    return str(exc).strip().partition("\n")[0].rstrip(".") or type(exc).__name__
