"""Sentence-embedding models in ONNX format."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from kept.config import LocalModelSettings
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.local_model import (
    count_cores,
    encodable,
    get_onnx_files,
    measure_calibration,
    model_name,
    require_packages,
    sample_digest,
)
from kept.embedding.onnx.declaration import read_declaration
from kept.embedding.onnx.runtime import OnnxModel, first_line
from kept.records import Matrix
from kept.remote_errors import EmbedderUnavailable, EmbeddingFailed

_POOLED = "sentence_embedding"
_CLASSES = "logits"  # of a model that classifies or ranks texts
_PER_TOKEN = ("last_hidden_state", "token_embeddings")
_PAD_TOKENS = ("[PAD]", "<pad>")

_BATCH_TEXTS = 16
_BATCH_TOKENS = 4_096

_LAST_LATIN = "\u024f"

# More characters than fit into a token.
_CHARS_PER_TOKEN = 40


class OnnxEmbedder:
    """Embedder that pools token vectors as the model's own files declare. It is loaded by the first text.

    A model with dynamic int8 quantisation scales its numbers by the content of the batch, so that a text's vector would
    depend on its neighbours (cosine 0.992 for bge-small), and on a CPU a batch costs it more, not less. Such a model
    gets one text at a time. Others get batches of texts of similar length.

    Each core computes texts of its own: that scales, whereas several threads on one short text mostly wait. Without
    ``calibration``, the scale is measured, once per process.

    A query in a script that an English model cannot read has no vector, so words alone answer it. The model's vectors
    of such texts are hardly about their content: recall@10 fell from 0.98 to 0.87 on Thai notes, to 0.95 on Chinese.
    """

    is_slow = True

    def __init__(
        self,
        path: str,
        settings: LocalModelSettings,
        *,
        calibration: Calibration | None = None,
        languages: tuple[str, ...] = (),
    ) -> None:
        self.languages = languages
        require_packages("onnxruntime", "tokenizers", extra="neural")
        self._files = get_onnx_files(path)
        declaration = read_declaration(self._files.folder, pooling=settings.pooling)
        self._pooling = declaration.pooling
        self._prefixes: dict[Role, str] = {
            "query": declaration.query_prefix if settings.query_prefix is None else settings.query_prefix,
            "document": declaration.document_prefix if settings.document_prefix is None else settings.document_prefix,
        }
        self._max_tokens = min(settings.max_tokens, declaration.max_tokens or settings.max_tokens)
        self._prefers_tokens = settings.pooling != "auto"
        """A pooling that was set by hand needs token vectors: an output that is pooled would ignore it."""
        self._width = declaration.width
        self._model = OnnxModel(self._files, max_tokens=self._max_tokens, make_error=_unusable, threads=1)
        self._known_calibration = calibration

    @cached_property
    def identity(self) -> Identity:
        recipe = (
            sample_digest((self._files.model, self._files.tokenizer)),
            f"{self._pooling}, by hand" if self._prefers_tokens else self._pooling,
            self._prefixes["query"],
            self._prefixes["document"],
            str(self._max_tokens),
        )
        fingerprint = hashlib.sha256("\n".join(recipe).encode()).hexdigest()
        return Identity("local", model_name(self._files.folder), self._dims, f"onnx-1:{fingerprint}")

    @cached_property
    def calibration(self) -> Calibration:
        return self._known_calibration or measure_calibration(self)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        if role == "query" and self.languages == ("en",) and all(map(_is_other_script, texts)):
            return pack_unit_rows(([0.0] * self._dims for _ in texts), self._dims)
        self._model.load(optimise=role == "document" or len(texts) > 1)
        token_ids = [self._encode(self._prefixes[role] + text) for text in texts]
        batches = list(self._iter_batches(token_ids))
        rows: list[list[float]] = [[]] * len(texts)
        for batch, vectors in zip(batches, self._run_all(token_ids, batches), strict=True):
            for position, row in zip(batch, vectors, strict=True):
                rows[position] = row
        return pack_unit_rows(rows, self._dims)

    def _run_all(self, token_ids: list[list[int]], batches: list[list[int]]) -> list[list[list[float]]]:
        """Return the vectors of each batch. Several batches share the cores, the longest texts first."""
        inputs = [[token_ids[at] for at in batch] for batch in batches]
        workers = min(count_cores(), len(inputs))
        if workers < 2:
            return [self._run(batch) for batch in inputs]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(self._run, inputs[::-1]))[::-1]

    def _iter_batches(self, token_ids: list[list[int]]) -> Iterator[list[int]]:
        """Yield positions of texts that go through the model together: of similar length, so that padding is small."""
        max_texts = 1 if self._is_dynamic else _BATCH_TEXTS
        batch: list[int] = []
        for position in sorted(range(len(token_ids)), key=lambda at: len(token_ids[at])):
            # The longest text so far decides the width of the whole batch.
            tokens = (len(batch) + 1) * len(token_ids[position])
            if batch and (len(batch) >= max_texts or tokens > _BATCH_TOKENS):
                yield batch
                batch = []
            batch.append(position)
        if batch:
            yield batch

    def _encode(self, text: str) -> list[int]:
        tokenizer = self._model.load(optimise=False).tokenizer
        ids: list[int] = tokenizer.encode(encodable(text, max_chars=self._max_tokens * _CHARS_PER_TOKEN)).ids
        return ids or [self._pad_id]  # a tokenizer without special tokens makes nothing of ""

    def _run(self, batch: list[list[int]]) -> list[list[float]]:
        import numpy as np

        model = self._model.load(optimise=False)
        ids = np.full((len(batch), max(map(len, batch))), self._pad_id, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.tile(np.arange(ids.shape[1]), (len(batch), 1)),
        }
        name = self._output
        try:
            output = model.run(name, inputs)
        except Exception as exc:  # the runtime raises nothing more specific
            raise EmbeddingFailed(f"{self._files.model}: the model failed ({first_line(exc)}).") from exc
        vectors: list[list[float]] = (output if output.ndim == 2 else self._pool(output, mask)).tolist()
        return vectors

    def _pool(self, output: Any, mask: Any) -> Any:
        import numpy as np

        match self._pooling:
            case "cls":
                return output[:, 0]
            case "last":
                return output[np.arange(len(output)), mask.sum(axis=1) - 1]
            case "mean":
                weights = mask[:, :, None].astype(np.float32)
                return (output * weights).sum(axis=1) / weights.sum(axis=1)

    # the model's files

    @cached_property
    def _output(self) -> str:
        """Name of the output with a vector for each text or each token."""
        outputs = self._model.load(optimise=False).session.get_outputs()
        ranks = {str(output.name): _rank(output) for output in outputs if output.name != _CLASSES}
        per_token = sorted((name for name in ranks if ranks[name] == 3), key=lambda name: name not in _PER_TOKEN)
        pooled = [name for name in ranks if ranks[name] == 2]
        named = [name for name in pooled if name == _POOLED]
        candidates = [*per_token, *pooled] if self._prefers_tokens else [*named, *per_token, *pooled]
        if not candidates:
            raise _unusable(self._files.model, "none of its outputs is a vector for each text or each token")
        if ranks[candidates[0]] == 3 and os.path.isdir(os.path.join(self._files.folder, "2_Dense")):
            raise _unusable(self._files.model, "it ends in a dense layer that this file does not contain")
        return candidates[0]

    @cached_property
    def _dims(self) -> int:
        return self._width or len(self._run([self._encode("width")])[0])

    @cached_property
    def _is_dynamic(self) -> bool:
        with open(self._files.model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return view.find(b"DynamicQuantize") >= 0

    @cached_property
    def _pad_id(self) -> int:
        tokenizer = self._model.load(optimise=False).tokenizer
        ids = (tokenizer.token_to_id(token) for token in _PAD_TOKENS)
        return next((token_id for token_id in ids if token_id is not None), 0)


def _is_other_script(text: str) -> bool:
    """Return whether most letters of a text are not Latin."""
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character > _LAST_LATIN for character in letters) > len(letters)


def _rank(output: Any) -> int:
    """Return 3 for a vector per token, 2 for one per text. If the file has no shape, the usual names decide."""
    if output.shape:
        return len(output.shape)
    return 3 if output.name in _PER_TOKEN else 2 if output.name == _POOLED else 0


def _unusable(path: str, reason: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding model cannot be used ({path}: {reason}).",
        hint="Fetch the model's files again, or set memory_search.local.model_path to another.",
    )
