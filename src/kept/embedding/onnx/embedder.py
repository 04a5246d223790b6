"""Sentence-embedding models in ONNX format."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
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
from kept.remote_errors import EmbeddingFailed

_SETTING = "memory_search.local.model_path"
_POOLED = "sentence_embedding"
_CLASSES = "logits"  # of a model that classifies or ranks texts
_PER_TOKEN = ("last_hidden_state", "token_embeddings")

_LAST_LATIN = "\u024f"

# More characters than fit into a token.
_CHARS_PER_TOKEN = 40


class OnnxEmbedder:
    """Embedder that pools token vectors as the model's own files declare. It is loaded by the first text.

    It gets one text at a time. A model with dynamic int8 quantisation scales its numbers by the content of a batch, so
    that a text's vector would depend on its neighbours (cosine 0.992 for bge-small), and on a CPU a batch costs more.

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
        self._model = OnnxModel(self._files, max_tokens=self._max_tokens, setting=_SETTING, threads=1)
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
        return pack_unit_rows(self._run_all(token_ids), self._dims)

    def _run_all(self, token_ids: list[list[int]]) -> list[list[float]]:
        """Return the vector of each text. Several texts share the cores."""
        workers = min(count_cores(), len(token_ids))
        if workers < 2:
            return list(map(self._run, token_ids))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(self._run, token_ids))

    def _encode(self, text: str) -> list[int]:
        tokenizer = self._model.load(optimise=False).tokenizer
        ids: list[int] = tokenizer.encode(encodable(text, max_chars=self._max_tokens * _CHARS_PER_TOKEN)).ids
        return ids or [0]  # a tokenizer without special tokens makes nothing of ""

    def _run(self, tokens: list[int]) -> list[float]:
        inputs = {
            "input_ids": [tokens],
            "attention_mask": [[1] * len(tokens)],
            "token_type_ids": [[0] * len(tokens)],
            "position_ids": [list(range(len(tokens)))],
        }
        name = self._output
        try:
            output = self._model.load(optimise=False).run(name, inputs)[0]
        except Exception as exc:  # the runtime raises nothing more specific
            raise EmbeddingFailed(f"{self._files.model}: the model failed ({first_line(exc)}).") from exc
        vector: list[float] = (output if output.ndim == 1 else self._pool(output)).tolist()
        return vector

    def _pool(self, output: Any) -> Any:
        match self._pooling:
            case "cls":
                return output[0]
            case "last":
                return output[-1]
            case "mean":
                return output.mean(axis=0)

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
            raise self._model.unusable(self._files.model, "none of its outputs is a vector for each text or each token")
        if ranks[candidates[0]] == 3 and os.path.isdir(os.path.join(self._files.folder, "2_Dense")):
            raise self._model.unusable(self._files.model, "it ends in a dense layer that this file does not contain")
        return candidates[0]

    @cached_property
    def _dims(self) -> int:
        return self._width or len(self._run(self._encode("width")))


def _is_other_script(text: str) -> bool:
    """Return whether most letters of a text are not Latin."""
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character > _LAST_LATIN for character in letters) > len(letters)


def _rank(output: Any) -> int:
    """Return 3 for a vector per token, 2 for one per text. If the file has no shape, the usual names decide."""
    if output.shape:
        return len(output.shape)
    return 3 if output.name in _PER_TOKEN else 2 if output.name == _POOLED else 0
