"""One `embed` call to a provider on the network: batches in four threads, and the best of what comes back.

A failure that concerns the texts (too long, refused) is narrowed down to the text that causes it. A failure that
concerns the service ends the run: batches that have not been sent are not sent. Either way the vectors that did arrive
are returned and the texts without one are named as gaps, so that nothing is paid for twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kept.embedding.base import Role, pack_unit_rows
from kept.embedding.batch import BatchText, iter_batches
from kept.errors import BadAnswer, EmbeddingError, EmbeddingFailed, RemoteError, RequestRefused
from kept.records import Gap, Matrix

if TYPE_CHECKING:
    from kept.embedding.remote import RemoteEmbedder

log = logging.getLogger(__name__)

CONCURRENT_CALLS = 4
_STATUS_ABOUT_TEXTS = (400, 413, 422)
_STATUS_TOO_LARGE = 413
_SHORTEST_CUT_CHARS = 64
_REFUSALS_BEFORE_ANY_ANSWER = 24
"""Halving finds one bad text among 256 within nine refusals. After many more without a single answer, the texts are not
the reason, and sending each of them alone would not help."""


class EmbedRun:
    """State of one `embed` call, shared by the threads that work on it."""

    def __init__(self, embedder: RemoteEmbedder, role: Role) -> None:
        self._embedder = embedder
        self._role = role
        self._halt = threading.Event()
        self._lock = threading.Lock()
        self._error: EmbeddingError | None = None
        self._refusals = 0
        self._vectors: dict[int, list[float]] = {}
        self._gaps: dict[int, Gap] = {}

    def embed(self, texts: Sequence[str]) -> Matrix:
        batch_texts = [BatchText(row, text) for row, text in enumerate(texts) if text.strip()]
        for row in {*range(len(texts))} - {text.row for text in batch_texts}:
            self._gaps[row] = Gap(row, "There is nothing in it to embed.", temporary=False)
        self._run(list(iter_batches(batch_texts, max_texts=self._embedder.max_texts)))
        if batch_texts and not self._vectors and self._must_raise():
            raise self._error or EmbeddingFailed(self._describe_failure(batch_texts))
        dims = self._embedder.dims
        if texts and not dims:
            raise EmbeddingFailed("There is nothing to embed.")
        return self._matrix(batch_texts, len(texts), dims)

    def _must_raise(self) -> bool:
        return self._error is not None or self._role == "query" or not self._provider_works()

    def _provider_works(self) -> bool:
        """Tell a provider that refuses these texts from one that refuses every text."""
        probe = EmbedRun(self._embedder, "document")
        probe._embed_batch([BatchText(0, "hello")])
        return bool(probe._vectors)

    def _matrix(self, batch_texts: list[BatchText], count: int, dims: int) -> Matrix:
        for text in batch_texts:
            if text.row not in self._vectors and text.row not in self._gaps:
                reason = self._error.message if self._error else "The work was ended before its turn."
                self._gaps[text.row] = Gap(text.row, reason, temporary=True)
        zeros = [0.0] * dims
        packed = pack_unit_rows((self._vectors.get(row, zeros) for row in range(count)), dims)
        return Matrix(dims, packed.data, tuple(self._gaps[row] for row in sorted(self._gaps)))

    def _describe_failure(self, batch_texts: list[BatchText]) -> str:
        gap = self._gaps.get(batch_texts[0].row)
        reason = gap.reason if gap else "No vector came back."
        return reason if len(batch_texts) == 1 else f"None of {len(batch_texts)} texts could be embedded. {reason}"

    # batches

    def _run(self, batches: list[list[BatchText]]) -> None:
        if len(batches) <= 1:
            for batch in batches:
                self._embed_batch(batch)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CONCURRENT_CALLS, thread_name_prefix="kept-embed") as pool:
            try:
                for future in [pool.submit(self._embed_batch, batch) for batch in batches]:
                    future.result()
            except BaseException:  # also KeyboardInterrupt
                # Threads cannot be cancelled, and leaving the pool waits for them.
                self._halt.set()
                self._embedder.client.abort()
                raise

    def _embed_batch(self, batch: list[BatchText]) -> None:
        """Embed a batch. The first EmbeddingError ends the run and is kept for `embed` to report."""
        try:
            self._embed_texts(batch)
        except EmbeddingError as exc:
            with self._lock:
                self._error = self._error or exc
            self._halt.set()

    def _embed_texts(self, texts: list[BatchText]) -> None:
        if self._halt.is_set():
            return
        try:
            answer = list(self._embedder.request_vectors([text.text for text in texts], self._role))
            self._accept(texts, answer)
        except RequestRefused as exc:
            if exc.status not in _STATUS_ABOUT_TEXTS or self._refuses_everything():
                raise self._embedder.translate_error(exc) from exc
            self._narrow_down(texts, exc)
        except RemoteError as exc:
            raise self._embedder.translate_error(exc) from exc

    def _refuses_everything(self) -> bool:
        with self._lock:
            self._refusals += 1
            return not self._embedder.has_answered and self._refusals > _REFUSALS_BEFORE_ANY_ANSWER

    def _narrow_down(self, texts: list[BatchText], refusal: RequestRefused) -> None:
        """Embed each half of a refused batch. Halve a single text that is too long; leave any other out."""
        middle = len(texts) // 2
        if middle:
            self._embed_texts(texts[:middle])
            self._embed_texts(texts[middle:])
            return
        row, text = texts[0].row, texts[0].text
        if refusal.status == _STATUS_TOO_LARGE and len(text) >= 2 * _SHORTEST_CUT_CHARS:
            # The beginning represents the text, as with the providers that cut by themselves.
            log.info("%s: a text of %d characters is too long and is cut.", self._embedder.provider, len(text))
            self._embed_texts([BatchText(row, text[: len(text) // 2])])
        else:
            self._gaps[row] = Gap(row, refusal.message, temporary=False)

    def _accept(self, texts: list[BatchText], answer: list[Any]) -> None:
        embedder = self._embedder
        if len(answer) != len(texts):
            raise BadAnswer(f"{embedder.origin} gave {len(answer)} vectors for {len(texts)} texts.")
        vectors = [embedder.read_vector(vector) for vector in answer]
        for vector in vectors:
            embedder.check_dims(len(vector))
        for text, vector in zip(texts, vectors, strict=True):
            if any(vector):
                self._vectors[text.row] = vector
            else:
                reason = f"{embedder.origin} gave a vector without direction."
                self._gaps[text.row] = Gap(text.row, reason, temporary=False)
