"""Any ONNX sentence-embedding model in a folder, through onnxruntime (the extra `kept[onnx]`)."""

from __future__ import annotations

import hashlib
import mmap
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from kept.config import Local
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.calibrate import measure_calibration
from kept.embedding.declared import read_declared
from kept.embedding.local_model import get_onnx_files, model_name, require_packages, sample_digest
from kept.embedding.onnx_graph import Output, read_outputs
from kept.embedding.onnx_session import first_line, open_session, open_tokenizer, wanted_inputs
from kept.errors import EmbedderUnavailable, EmbeddingFailed
from kept.records import Matrix

_POOLED = "sentence_embedding"
_CLASSES = "logits"  # of a model that sorts or ranks texts
_PER_TOKEN = ("last_hidden_state", "token_embeddings")
_PAD_TOKENS = ("[PAD]", "<pad>")

_BATCH_TEXTS = 16
_BATCH_TOKENS = 4_096

# Longer than any text that fits: tokenizing megabytes to keep 512 tokens would cost more than the model.
_CHARS_PER_TOKEN = 40


class OnnxEmbedder:
    """One vector for each text, pooled as the model's own files declare.

    A model with dynamic int8 quantisation scales its numbers by what is in the batch, so that a text's vector would
    depend on its neighbours (cosine 0.992 for bge-small), and on a CPU a batch costs it more, not less. Such a model
    gets one text at a time. Others get batches of texts of about the same length.
    """

    def __init__(self, path: str, settings: Local) -> None:
        require_packages("onnxruntime", "tokenizers", extra="onnx")
        self._loading = threading.Lock()
        self._files = get_onnx_files(path)
        declared = read_declared(self._files.folder, pooling=settings.pooling)
        self._pooling = declared.pooling
        self._prefixes: dict[Role, str] = {
            "query": declared.query_prefix if settings.query_prefix is None else settings.query_prefix,
            "document": declared.document_prefix if settings.document_prefix is None else settings.document_prefix,
        }
        self._max_tokens = min(settings.max_tokens, declared.max_tokens or settings.max_tokens)
        self._output = self._choose_output(explicit=settings.pooling != "auto")
        self._is_pooled = _rank(self._output) == 2
        if declared.dense and not self._is_pooled:
            raise EmbedderUnavailable(
                f"{self._files.model}: the model ends in a dense layer that this file does not contain.",
                hint=f"Export it with the whole model inside, so that it has an output named {_POOLED}.",
            )

    @cached_property
    def identity(self) -> Identity:
        recipe = (
            sample_digest((*self._files.weights, self._files.tokenizer)),
            "pooled" if self._is_pooled else self._pooling,
            self._prefixes["query"],
            self._prefixes["document"],
            str(self._max_tokens),
        )
        fingerprint = hashlib.sha256("\n".join(recipe).encode()).hexdigest()
        return Identity("local", model_name(self._files.folder), self._dims, f"onnx-1:{fingerprint}")

    @cached_property
    def calibration(self) -> Calibration:
        return measure_calibration(self)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        with self._loading:  # several threads may come first
            _ = self._tokenizer, self._pad_id, self._wanted, self._is_dynamic
        return pack_unit_rows(self._vectors([self._prefixes[role] + text for text in texts]), self._dims)

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        encoded = [self._encode(text) for text in texts]
        rows: list[list[float]] = [[]] * len(texts)
        for batch in self._batches(encoded):
            for at, row in zip(batch, self._run([encoded[at] for at in batch]), strict=True):
                rows[at] = row
        return rows

    def _batches(self, encoded: list[list[int]]) -> Iterator[list[int]]:
        """Positions of texts that go through the model together: alike in length, so that little is padding."""
        most = 1 if self._is_dynamic else _BATCH_TEXTS
        batch: list[int] = []
        for at in sorted(range(len(encoded)), key=lambda at: len(encoded[at])):
            if batch and (len(batch) >= most or (len(batch) + 1) * len(encoded[at]) > _BATCH_TOKENS):
                yield batch
                batch = []
            batch.append(at)
        if batch:
            yield batch

    def _encode(self, text: str) -> list[int]:
        whole = text[: self._max_tokens * _CHARS_PER_TOKEN].encode("utf-8", "replace").decode()
        ids: list[int] = self._tokenizer.encode(whole).ids
        return ids or [self._pad_id]  # a tokenizer without marks makes nothing of ""

    def _run(self, batch: list[list[int]]) -> list[list[float]]:
        import numpy as np

        ids = np.full((len(batch), max(map(len, batch))), self._pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        offered = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.tile(np.arange(ids.shape[1]), (len(batch), 1)),
        }
        feed = {name: offered[name].astype(dtype) for name, dtype in self._wanted.items()}
        try:
            out = self._session.run([self._output.name], feed)[0].astype(np.float32)
        except Exception as exc:
            raise EmbeddingFailed(f"{self._files.model}: the model failed ({first_line(exc)}).") from exc
        vectors: list[list[float]] = (out if self._is_pooled else self._pool(out, mask)).tolist()
        return vectors

    def _pool(self, out: Any, mask: Any) -> Any:
        import numpy as np

        match self._pooling:
            case "cls":
                return out[:, 0]
            case "last":
                return out[np.arange(len(out)), mask.sum(axis=1) - 1]
            case "mean":
                weights = mask[:, :, None].astype(np.float32)
                return (out * weights).sum(axis=1) / weights.sum(axis=1)

    # the files

    def _choose_output(self, *, explicit: bool) -> Output:
        """The output that is a vector for each text or, where the pooling was given by hand, one for each token."""
        path = self._files.model
        try:
            outputs = read_outputs(path)
        except (OSError, ValueError) as exc:
            raise _unusable(path, exc) from exc
        per_token = [output for output in outputs if _rank(output) == 3]
        per_token.sort(key=lambda output: output.name not in _PER_TOKEN)
        pooled = [output for output in outputs if _rank(output) == 2 and output.name != _CLASSES]
        named = [output for output in pooled if output.name == _POOLED]
        order = [*per_token, *named, *pooled] if explicit else [*named, *per_token, *pooled]
        if not order:
            raise _unusable(path, ValueError("none of its outputs is a vector for each text or each token"))
        return order[0]

    @cached_property
    def _dims(self) -> int:
        known = self._output.shape[-1] if self._output.shape else None
        return known or len(self._run([self._encode("width")])[0])

    @cached_property
    def _session(self) -> Any:
        try:
            return open_session(self._files.model)
        except Exception as exc:
            raise _unusable(self._files.model, exc) from exc

    @cached_property
    def _wanted(self) -> dict[str, str]:
        """The inputs that the model takes, and the kind of number each one is."""
        try:
            return wanted_inputs(self._session)
        except ValueError as exc:
            raise _unusable(self._files.model, exc) from exc

    @cached_property
    def _is_dynamic(self) -> bool:
        with open(self._files.model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view.find(b"DynamicQuantize") >= 0

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            return open_tokenizer(self._files.tokenizer, self._max_tokens)
        except Exception as exc:  # the library raises nothing more particular
            raise _unusable(self._files.tokenizer, exc) from exc

    @cached_property
    def _pad_id(self) -> int:
        known = (self._tokenizer.token_to_id(token) for token in _PAD_TOKENS)
        return next((number for number in known if number is not None), 0)


def _rank(output: Output) -> int:
    """3 for a vector for each token, 2 for one for each text. Where the file has no shape, the usual names tell."""
    if output.shape:
        return len(output.shape)
    return 3 if output.name in _PER_TOKEN else 2 if output.name == _POOLED else 0


def _unusable(path: str, exc: Exception) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding model cannot be used ({path}: {first_line(exc)}).",
        hint="Fetch the model's files again, or set memory_search.local.model_path to another.",
    )
