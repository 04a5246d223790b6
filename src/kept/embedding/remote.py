"""What all providers on the network share: batches, four at a time, and making the best of what they answer.

A failure that concerns the texts (too long, refused) is narrowed down to the text that causes it. A failure that
concerns the service ends the work: what has not been asked yet is not asked. Either way the vectors that did arrive
are returned, and the texts that have none are named as gaps, so that nothing is paid for twice.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kept.config import KEY_VARIABLES, MemorySearch, ProviderKeys, Remote
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.batch import MAX_ITEMS, Item, iter_batches, token_bound
from kept.errors import (
    AccessRefused,
    BadAnswer,
    EmbedderUnavailable,
    EmbeddingError,
    EmbeddingFailed,
    QuotaExhausted,
    RemoteError,
    RequestRefused,
)
from kept.limits import MAX_TOKENS, is_count
from kept.net import (
    DOCUMENTS,
    QUERY,
    Endpoint,
    HttpClient,
    Pace,
    Patience,
    fits_header,
    is_auth_header,
    parse_endpoint,
)
from kept.records import Gap, Matrix, Usage
from kept.values import frozen

log = logging.getLogger(__name__)

CALLS_AT_A_TIME = 4
_ABOUT_THE_TEXTS = (400, 413, 422)
_TOO_LARGE = 413
_SHORTEST_CUT_CHARS = 64
_REFUSALS_BEFORE_ANY_ANSWER = 24
"""Halving finds one bad text among 256 within nine refusals. After many more without a single answer, it is not the
texts that the provider objects to, and asking for each of them alone would help nobody."""


@frozen
class Account:
    """Where a provider is asked, and as whom."""

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass
class _Run:
    """One call of `embed`, as the threads that share its work see it."""

    role: Role
    halt: threading.Event = field(default_factory=threading.Event)
    error: EmbeddingError | None = None
    refusals: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[int, list[float]] = field(default_factory=dict)
    gaps: dict[int, Gap] = field(default_factory=dict)


class RemoteEmbedder(ABC):
    """A provider has to say how it is asked for the vectors of some texts, and that is all."""

    provider: ClassVar[str]
    default_model: ClassVar[str]
    known_dims: ClassVar[Mapping[str, int]] = {}
    max_items: ClassVar[int] = MAX_ITEMS
    calibration: Calibration

    def __init__(
        self,
        account: Account,
        *,
        model: str | None = None,
        dimensions: int | None = None,
        pace: Pace | None = None,
        client: HttpClient | None = None,
        query_patience: Patience = QUERY,
        document_patience: Patience = DOCUMENTS,
    ) -> None:
        self.model = model or self.default_model
        self.dimensions = dimensions or None
        self._patience = {"query": query_patience, "document": document_patience}
        self._seen_dims = 0
        self._texts = 0
        self._tokens = 0
        self._lock = threading.Lock()
        key = (account.api_key or "").strip() or None
        if key is not None and not fits_header(key):
            raise AccessRefused(
                f"The API key for {self.provider} has characters in it that no key has.", hint=self._key_hint()
            )
        headers = {**self._auth_headers(key), **account.headers}
        self._client = client or HttpClient(account.base_url, headers=headers, secrets=[key or ""], pace=pace)
        self._identity = Identity(
            self.provider,
            self.model,
            self.dimensions or self.known_dims.get(self.model.partition(":")[0], 0),
            fingerprint(self._client.endpoint, account.headers),
        )

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: MemorySearch, keys: ProviderKeys) -> RemoteEmbedder:
        """Raises EmbedderUnavailable where something that it needs is not set."""

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def usage(self) -> Usage:
        with self._lock:
            return Usage(self._client.calls, self._client.retries, self._texts, self._tokens)

    @property
    def client(self) -> HttpClient:
        return self._client

    def close(self) -> None:
        self._client.close()

    def pack(self, vector: Any) -> bytes | None:
        """A vector that came by another way than `embed`, checked as all are; None where it has no direction.

        Raises BadAnswer or EmbeddingFailed where it is none of this model's.
        """
        numbers = _numbers(vector, self._origin)
        self._check_dims(len(numbers))
        return pack_unit_rows([numbers], len(numbers)).data if any(numbers) else None

    def count_usage(self, *, texts: int, tokens: int) -> None:
        with self._lock:
            self._texts += texts
            self._tokens += tokens

    # what a provider says about itself

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    @abstractmethod
    def _ask(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        """The vector of each text, in order, as the provider gives them. Raises RemoteError."""

    def _post(self, path: str, body: Any, role: Role, texts: Sequence[str]) -> Any:
        answer = self._client.post_json(path, body, patience=self._patience[role])
        tokens = tokens_used(answer)
        self.count_usage(texts=len(texts), tokens=sum(map(token_bound, texts)) if tokens is None else tokens)
        return answer

    # what is the same for all

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        """Raises only if not one text could be embedded, and not because of the texts themselves.

        Blank texts are never sent; their rows are gaps.
        """
        run = _Run(role)
        items = [Item(row, text) for row, text in enumerate(texts) if text.strip()]
        for row in {*range(len(texts))} - {item.row for item in items}:
            run.gaps[row] = Gap(row, "There is nothing in it to embed.", temporary=False)
        self._work(run, list(iter_batches(items, max_items=self.max_items)))
        if items and not run.rows and (run.error or role == "query" or not self._takes_other_texts()):
            raise run.error or EmbeddingFailed(self._nothing_embedded(run, items))
        dims = self._seen_dims or self.identity.dims
        if texts and not dims:
            raise EmbeddingFailed("There is nothing to embed.")
        return self._matrix(run, len(texts), items, dims)

    def _takes_other_texts(self) -> bool:
        """Tells a provider that refuses these texts from one that refuses whatever it is asked."""
        probe = _Run("document")
        self._embed_batch([Item(0, "hello")], probe)
        return bool(probe.rows)

    def _matrix(self, run: _Run, count: int, items: list[Item], dims: int) -> Matrix:
        for item in items:
            if item.row not in run.rows and item.row not in run.gaps:
                reason = run.error.message if run.error else "The work was ended before its turn."
                run.gaps[item.row] = Gap(item.row, reason, temporary=True)
        zeros = [0.0] * dims
        packed = pack_unit_rows((run.rows.get(row, zeros) for row in range(count)), dims)
        return Matrix(dims, packed.data, tuple(run.gaps[row] for row in sorted(run.gaps)))

    def _work(self, run: _Run, batches: list[list[Item]]) -> None:
        if len(batches) <= 1:
            for batch in batches:
                self._embed_batch(batch, run)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CALLS_AT_A_TIME, thread_name_prefix="kept-embed") as pool:
            try:
                for done in [pool.submit(self._embed_batch, batch, run) for batch in batches]:
                    done.result()
            except BaseException:
                # Threads cannot be cancelled, and leaving the pool waits for them.
                run.halt.set()
                self._client.abort()
                raise

    def _embed_batch(self, batch: list[Item], run: _Run) -> None:
        """Never raises EmbeddingError: the first one ends the run, and is told by whoever sums it up."""
        try:
            self._embed_items(batch, run)
        except EmbeddingError as exc:
            with run.lock:
                run.error = run.error or exc
            run.halt.set()

    def _embed_items(self, items: list[Item], run: _Run) -> None:
        if run.halt.is_set():
            return
        try:
            answer = list(self._ask([item.text for item in items], run.role))
            self._accept(items, answer, run)
        except RequestRefused as exc:
            if exc.status not in _ABOUT_THE_TEXTS or self._refuses_everything(run):
                raise self._translated(exc) from exc
            self._narrow_down(items, exc, run)
        except RemoteError as exc:
            raise self._translated(exc) from exc

    def _refuses_everything(self, run: _Run) -> bool:
        with run.lock:
            run.refusals += 1
            return not self._seen_dims and run.refusals > _REFUSALS_BEFORE_ANY_ANSWER

    def _narrow_down(self, items: list[Item], refusal: RequestRefused, run: _Run) -> None:
        middle = len(items) // 2
        if middle:
            self._embed_items(items[:middle], run)
            self._embed_items(items[middle:], run)
        elif refusal.status == _TOO_LARGE and len(items[0].text) >= 2 * _SHORTEST_CUT_CHARS:
            # Its beginning stands for it, as with the providers that cut by themselves.
            log.info("%s: a text of %d characters is too long and is cut.", self.provider, len(items[0].text))
            self._embed_items([Item(items[0].row, items[0].text[: len(items[0].text) // 2])], run)
        else:
            run.gaps[items[0].row] = Gap(items[0].row, refusal.message, temporary=False)

    def _accept(self, items: list[Item], answer: list[Any], run: _Run) -> None:
        if len(answer) != len(items):
            raise BadAnswer(f"{self._origin} gave {len(answer)} vectors for {len(items)} texts.")
        vectors = [_numbers(vector, self._origin) for vector in answer]
        for vector in vectors:
            self._check_dims(len(vector))
        for item, vector in zip(items, vectors, strict=True):
            if any(vector):
                run.rows[item.row] = vector
            else:
                run.gaps[item.row] = Gap(item.row, f"{self._origin} gave a vector without direction.", temporary=False)

    def _check_dims(self, dims: int) -> None:
        with self._lock:
            expected = self.identity.dims or self._seen_dims or dims
            self._seen_dims = expected
        if dims != expected or not dims:
            raise EmbeddingFailed(
                f"{self._origin} gave a vector of {dims} dimensions where {self.model} has {expected}.",
                hint="If the model was replaced by another, name it in memory_search.model and run 'kept index'.",
            )

    @property
    def _origin(self) -> str:
        return self._client.endpoint.origin

    def _nothing_embedded(self, run: _Run, items: list[Item]) -> str:
        reason = run.gaps[items[0].row].reason if items[0].row in run.gaps else "No vector came back."
        return reason if len(items) == 1 else f"Not one of {len(items)} texts could be embedded. {reason}"

    def _translated(self, exc: RemoteError) -> EmbeddingError:
        match exc:
            case QuotaExhausted():
                return EmbedderUnavailable(
                    f"The quota of {self.provider} is used up. {exc.message}",
                    hint="Check plan and billing there, or set memory_search.provider to local.",
                )
            case RequestRefused(status=401):
                return AccessRefused(
                    f"{self.provider} does not accept the API key. {exc.message}", hint=self._key_hint()
                )
            case RequestRefused(status=404):
                return EmbedderUnavailable(f"{self.provider}: {exc.message}", hint=self._not_found_hint())
            case RequestRefused():
                return EmbedderUnavailable(f"{self.provider}: {exc.message}", hint=exc.hint)
        return EmbeddingFailed(f"{self.provider}: {exc.message}", hint=exc.hint)

    def _key_hint(self) -> str:
        names = " or ".join(KEY_VARIABLES.get(self.provider, ()))
        own = f"{names}, or " if names else ""
        return f"Set {own}memory_search.remote.api_key in config.yaml."

    def _not_found_hint(self) -> str:
        return "Check memory_search.model and memory_search.remote.base_url."


def find_account(provider: str, default_url: str, settings: MemorySearch, keys: ProviderKeys) -> Account:
    """The key of the environment goes to the provider it belongs to, and nowhere else.

    Another endpoint gets the key that the configuration gives for it, or none: many want none.
    """
    remote: Remote = settings.remote
    at_home = remote.base_url is None or parse_endpoint(remote.base_url).origin == parse_endpoint(default_url).origin
    key = remote.api_key or (keys.find(provider) if at_home else None)
    if at_home and not key and not any(map(is_auth_header, remote.headers)):
        names = " or ".join(KEY_VARIABLES[provider])
        raise AccessRefused(
            f"There is no API key for {provider}: set {names}, or memory_search.remote.api_key in config.yaml.",
            hint="Or set memory_search.provider to local.",
        )
    return Account(remote.base_url or default_url, key, remote.headers)


def fingerprint(endpoint: Endpoint, headers: Mapping[str, str]) -> str:
    """Where vectors come from, without anything that might be secret: credentials of an address and its query, and
    headers that are for authorisation."""
    plain = sorted((name.lower(), value) for name, value in headers.items() if not is_auth_header(name))
    whole = "\n".join([endpoint.public_url, *(f"{name}: {value}" for name, value in plain)])
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def tokens_used(answer: Any) -> int | None:
    """What the answer says it cost, under the names that providers have for it; None where that cannot be true."""
    if not isinstance(answer, dict):
        return None
    places = ("usage", "total_tokens"), ("usageMetadata", "promptTokenCount"), ("", "prompt_eval_count")
    for group, name in places:
        told = answer.get(group) if group else answer
        tokens = told.get(name) if isinstance(told, dict) else None
        if is_count(tokens, MAX_TOKENS):
            return tokens
    return None


def _numbers(vector: Any, origin: str) -> list[float]:
    """What is not a finite number of sensible size counts as 0; what is no number at all is no vector."""
    if not isinstance(vector, list):
        raise BadAnswer(f"{origin} gave something that is not a vector.")
    numbers = []
    for value in vector:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadAnswer(f"{origin} gave a vector with something in it that is not a number.")
        # A comparison with NaN is false, and null is how some servers write it.
        numbers.append(float(value) if value is not None and -1e30 < value < 1e30 else 0.0)
    return numbers
