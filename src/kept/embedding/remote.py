"""Embedders on the network: account, identity, usage and errors. A provider adds only the form of its requests.

One `embed` call is an `EmbedRun`: batches in four threads, and the best of what comes back. A failure that concerns the
texts (too long, refused) is narrowed down to the text that causes it. A failure that concerns the service ends the run:
batches that have not been sent are not sent. Either way the vectors that did arrive are returned and the texts without
one are named as gaps, so that nothing is paid for twice.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

from kept.base.limits import MAX_TOKENS, is_count
from kept.base.net import (
    DOCUMENT_TIMEOUTS,
    QUERY_TIMEOUTS,
    Endpoint,
    HttpClient,
    ProviderAccount,
    RetryPolicy,
    choose_account,
    is_auth_header,
)
from kept.base.records import Gap, Matrix
from kept.base.remote_errors import (
    BadAnswer,
    EmbedderUnavailable,
    EmbeddingError,
    EmbeddingFailed,
    QuotaExhausted,
    RemoteError,
    RequestRefused,
    VectorMisfit,
)
from kept.base.reports import Usage
from kept.base.values import frozen
from kept.config.agent_config import KEY_VARIABLES, ProviderKeys
from kept.config.schema import MemorySearchSettings
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows

log = logging.getLogger(__name__)

MAX_BATCH_TOKENS = 8_000
# More vectors than this in one answer are megabytes of digits, and a lost answer loses them all.
MAX_TEXTS = 256
CONCURRENT_CALLS = 4
_STATUS_ABOUT_TEXTS = (400, 413, 422)
_STATUS_TOO_LARGE = 413
_SHORTEST_CUT_CHARS = 64


@frozen
class KnownModel:
    dims: int
    usd: float | None = None
    """List price of a million tokens, for an estimate; None if it is not known."""


class RemoteEmbedder(ABC):
    """Base of all providers on the network. A provider defines the class variables and `request_vectors`."""

    provider: ClassVar[str]
    home_url: ClassVar[str]
    default_model: ClassVar[str]
    models: ClassVar[Mapping[str, KnownModel]]
    is_free: ClassVar[bool] = False
    max_texts: ClassVar[int] = MAX_TEXTS
    calibration: Calibration

    def __init__(
        self,
        account: ProviderAccount,
        *,
        model: str | None = None,
        dimensions: int | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        if not account.has_valid_key:
            raise EmbedderUnavailable(
                f"The API key for {self.provider} has characters in it that no key has.", hint=self._key_hint()
            )
        self.model = model or self.default_model
        self.dimensions = dimensions or None
        self._lock = threading.Lock()
        self.answered_dims = 0
        self._texts = 0
        self._tokens = 0
        self.client = HttpClient(
            account.base_url,
            headers={**self._auth_headers(account.key), **account.headers},
            secrets=[account.key or ""],
            policy=policy,
        )
        known = self.models.get(self.model.partition(":")[0])
        self.identity = Identity(
            self.provider,
            self.model,
            self.dimensions or (known.dims if known else 0),
            fingerprint(self.client.endpoint, account.headers),
        )

    @classmethod
    def from_settings(
        cls, settings: MemorySearchSettings, keys: ProviderKeys, *, policy: RetryPolicy | None = None
    ) -> Self:
        """Return the embedder that the settings describe. Raise EmbedderUnavailable if a setting is missing."""
        # Google's documentation writes models/ before the names of its models.
        model = settings.model.removeprefix("models/") if settings.model else None
        return cls(cls._account(settings, keys), model=model, dimensions=settings.dimensions, policy=policy)

    @classmethod
    def _account(cls, settings: MemorySearchSettings, keys: ProviderKeys) -> ProviderAccount:
        remote = settings.remote
        account = choose_account(
            cls.home_url,
            base_url=remote.base_url,
            api_key=remote.api_key,
            environment_key=keys.find(cls.provider),
            headers=remote.headers,
        )
        if account.is_home and not account.has_credentials:
            variables = " or ".join(KEY_VARIABLES[cls.provider])
            raise EmbedderUnavailable(
                f"There is no API key for {cls.provider}: set {variables}, or memory_search.remote.api_key"
                " in config.yaml.",
                hint="Or set memory_search.provider to local.",
            )
        return account

    # requests

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    @abstractmethod
    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        """Return the vector of each text, in order, as the provider sends them. Raise RemoteError."""

    def _post(self, path: str, body: Any, role: Role, texts: Sequence[str]) -> Any:
        timeouts = QUERY_TIMEOUTS if role == "query" else DOCUMENT_TIMEOUTS
        answer = self.client.post_json(path, body, timeouts=timeouts)
        tokens = tokens_used(answer)
        self.count_usage(texts=len(texts), tokens=sum(map(token_bound, texts)) if tokens is None else tokens)
        return answer

    @property
    def origin(self) -> str:
        return self.client.endpoint.origin

    def check_reachable(self) -> None:  # noqa: B027  (most providers have nothing to check without a paid call)
        """Raise EmbedderUnavailable if the provider needs a server of the user's own, and none answers."""

    # vectors

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        """Return a row for each text. Raise only if no text could be embedded and the texts are not the cause.

        Blank texts are never sent; their rows are gaps.
        """
        return EmbedRun(self, role).embed(texts)

    @property
    def dims(self) -> int:
        """Length of this model's vectors at its last answer, or 0 before the first if it is not known beforehand."""
        return self.answered_dims or self.identity.dims

    def pack(self, vector: Any) -> bytes | None:
        """Return a vector of an answer at unit length, or None if it has no direction. A value that is not finite or
        absurdly large counts as 0.

        Raise BadAnswer or VectorMisfit if it cannot be a vector of this model.
        """
        if not isinstance(vector, list) or not vector:
            raise BadAnswer(f"{self.origin} gave something that is not a vector.")
        values = []
        for value in vector:
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise BadAnswer(f"{self.origin} gave a vector with something in it that is not a number.")
            # A comparison with NaN is false, and some servers write NaN as null.
            values.append(float(value) if value is not None and -1e30 < value < 1e30 else 0.0)
        dims = len(values)
        if self.identity.dims not in (0, dims):
            raise VectorMisfit(
                f"{self.origin} gave a vector of {dims} dimensions where {self.model} has {self.identity.dims}."
                f" If its model is another one, set memory_search.dimensions to {dims} and run 'kept index'."
            )
        self.answered_dims = dims
        return pack_unit_rows([values], dims).data if any(values) else None

    # usage

    @property
    def usage(self) -> Usage:
        with self._lock:
            return Usage(self.client.calls, self.client.retries, self._texts, self._tokens)

    def count_usage(self, *, texts: int, tokens: int) -> None:
        with self._lock:
            self._texts += texts
            self._tokens += tokens

    def close(self) -> None:
        self.client.close()

    # errors

    def translate_error(self, exc: RemoteError) -> EmbeddingError:
        """Return the error of a call as one about embedding, with a hint that fits this provider."""
        message, hint = f"{self.provider}: {exc.message}", exc.hint
        match exc:
            case QuotaExhausted():
                message = f"The quota of {self.provider} is used up. {exc.message}"
                hint = "Check plan and billing there, or set memory_search.provider to local."
            case RequestRefused(status=401):
                message, hint = f"{self.provider} does not accept the API key. {exc.message}", self._key_hint()
            case RequestRefused(status=404):
                hint = self._not_found_hint()
        error = EmbedderUnavailable if isinstance(exc, RequestRefused) else EmbeddingFailed
        return error(message, hint=hint)

    def _key_hint(self) -> str:
        variables = " or ".join(KEY_VARIABLES.get(self.provider, ()))
        prefix = f"{variables}, or " if variables else ""
        return f"Set {prefix}memory_search.remote.api_key in config.yaml."

    def _not_found_hint(self) -> str:
        return "Check memory_search.model and memory_search.remote.base_url."


def fingerprint(endpoint: Endpoint, headers: Mapping[str, str]) -> str:
    """Return a hash of the place that vectors come from.

    Parts that may be secret are left out: user, password and query of the address, and authorisation headers.
    """
    public = sorted((name.lower(), value) for name, value in headers.items() if not is_auth_header(name))
    text = "\n".join([endpoint.public_url, *(f"{name}: {value}" for name, value in public)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# Names that providers use for the tokens of a request: the group, if any, and the field in it.
_TOKEN_FIELDS = ("usage", "total_tokens"), ("usageMetadata", "promptTokenCount"), ("", "prompt_eval_count")


def tokens_used(answer: Any) -> int | None:
    """Return the tokens that an answer reports, or None if it reports none that can be true."""
    if not isinstance(answer, dict):
        return None
    for group, name in _TOKEN_FIELDS:
        fields = answer.get(group) if group else answer
        tokens = fields.get(name) if isinstance(fields, dict) else None
        if is_count(tokens, MAX_TOKENS):
            return tokens
    return None


def get_list(answer: Any, name: str, origin: str) -> list[Any]:
    """Return a field of an answer that has to be a list. Raise BadAnswer if it is not."""
    values = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(values, list):
        raise BadAnswer(f"{origin} answered without '{name}'.")
    return values


# one call


T = TypeVar("T")
# The row of a vector, and its text.
BatchText = tuple[int, str]


def token_bound(text: str) -> int:
    """Return an upper estimate of the tokens: one per three bytes, a part of an English word or a Thai character."""
    return len(text.encode("utf-8", "replace")) // 3 + 1


def _tokens_of(text: BatchText) -> int:
    return token_bound(text[1])


def iter_batches(
    texts: Iterable[T], weigh: Callable[[T], int], *, max_texts: int, max_weight: int
) -> Iterator[list[T]]:
    """Yield the texts in order, in batches as full as the limits allow. A text over the limit is a batch alone."""
    batch: list[T] = []
    weight = 0
    for text in texts:
        if batch and (len(batch) >= max_texts or weight + weigh(text) > max_weight):
            yield batch
            batch, weight = [], 0
        batch.append(text)
        weight += weigh(text)
    if batch:
        yield batch


class EmbedRun:
    """State of one `embed` call, shared by the threads that work on it."""

    def __init__(self, embedder: RemoteEmbedder, role: Role) -> None:
        self._embedder = embedder
        self._role = role
        self._halt = threading.Event()
        self._lock = threading.Lock()
        self._error: EmbeddingError | None = None
        self._length = 0
        """Bytes of each vector."""
        self._vectors: dict[int, bytes] = {}
        self._gaps: dict[int, Gap] = {}

    def embed(self, texts: Sequence[str]) -> Matrix:
        batch_texts = [(row, text) for row, text in enumerate(texts) if text.strip()]
        for row in {*range(len(texts))} - {row for row, _ in batch_texts}:
            self._gaps[row] = Gap(row, "There is nothing in it to embed.", temporary=False)
        max_texts = self._embedder.max_texts
        self._run(list(iter_batches(batch_texts, _tokens_of, max_texts=max_texts, max_weight=MAX_BATCH_TOKENS)))
        if batch_texts and not self._vectors and (self._error or self._role == "query"):
            raise self._error or EmbeddingFailed(self._gaps[batch_texts[0][0]].reason)
        dims = self._embedder.dims
        if texts and not dims:
            raise EmbeddingFailed("There is nothing to embed.")
        for row, _ in batch_texts:
            if row not in self._vectors and row not in self._gaps:
                reason = self._error.message if self._error else "The work was ended before its turn."
                self._gaps[row] = Gap(row, reason, temporary=True)
        data = b"".join(self._vectors.get(row, bytes(4 * dims)) for row in range(len(texts)))
        return Matrix(dims, data, tuple(self._gaps[row] for row in sorted(self._gaps)))

    # batches

    def _run(self, batches: list[list[BatchText]]) -> None:
        if len(batches) <= 1:
            for batch in batches:
                self._embed_batch(batch)
            return
        left = iter(batches)

        def work() -> None:
            for batch in left:
                self._embed_batch(batch)

        # Daemons: an interruption does not wait for the calls under way.
        threads = [threading.Thread(target=work, name="kept-embed", daemon=True) for _ in range(CONCURRENT_CALLS)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:  # also KeyboardInterrupt
            self._halt.set()
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
            answer = list(self._embedder.request_vectors([text for _, text in texts], self._role))
            self._accept(texts, answer)
        except RequestRefused as exc:
            if exc.status not in _STATUS_ABOUT_TEXTS or not self._provider_works():
                raise self._embedder.translate_error(exc) from exc
            self._narrow_down(texts, exc)
        except RemoteError as exc:
            raise self._embedder.translate_error(exc) from exc

    def _provider_works(self) -> bool:
        """Tell a provider that refuses these texts from one that refuses every text."""
        embedder = self._embedder
        try:
            if not embedder.answered_dims:
                for vector in embedder.request_vectors(["hello"], "document"):
                    embedder.pack(vector)
        except RequestRefused:
            return False
        except RemoteError as exc:
            raise embedder.translate_error(exc) from exc
        return True

    def _narrow_down(self, texts: list[BatchText], refusal: RequestRefused) -> None:
        """Embed each half of a refused batch. Halve a single text that is too long; leave any other out."""
        middle = len(texts) // 2
        if middle:
            self._embed_texts(texts[:middle])
            self._embed_texts(texts[middle:])
            return
        row, text = texts[0]
        if refusal.status == _STATUS_TOO_LARGE and len(text) >= 2 * _SHORTEST_CUT_CHARS:
            # The beginning represents the text, as with the providers that cut by themselves.
            log.info("%s: a text of %d characters is too long and is cut.", self._embedder.provider, len(text))
            self._embed_texts([(row, text[: len(text) // 2])])
        else:
            self._gaps[row] = Gap(row, refusal.message, temporary=False)

    def _accept(self, texts: list[BatchText], answer: list[Any]) -> None:
        embedder = self._embedder
        if len(answer) != len(texts):
            raise BadAnswer(f"{embedder.origin} gave {len(answer)} vectors for {len(texts)} texts.")
        vectors = [embedder.pack(vector) for vector in answer]
        for length in map(len, filter(None, vectors)):
            with self._lock:
                self._length = self._length or length
            if length != self._length:
                sizes = f"{self._length // 4} and of {length // 4}"
                raise BadAnswer(f"{embedder.origin} gave vectors of {sizes} dimensions.")
        for (row, _), vector in zip(texts, vectors, strict=True):
            if vector is None:
                self._gaps[row] = Gap(row, f"{embedder.origin} gave a vector without direction.", temporary=False)
            else:
                self._vectors[row] = vector
