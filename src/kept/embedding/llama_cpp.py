"""A GGUF model through llama.cpp, in this process: xllamacpp (the extra `kept[llama-cpp]`), which comes as a wheel.

The library wraps the server of llama.cpp, which listens as soon as it runs. Here it listens on a socket in a private
folder and requires a random key that is kept nowhere; all calls bypass the socket and go straight into the process.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import cached_property
from operator import mul
from statistics import fmean, pstdev
from typing import Any

from kept.base.limits import utf8_safe
from kept.base.records import Matrix
from kept.base.remote_errors import EmbedderUnavailable, EmbeddingFailed
from kept.base.values import frozen
from kept.config.schema import LocalModelSettings
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows
from kept.embedding.model_catalogue import require_packages, sample_digest

_MAX_THREADS = 4
_CHARS_PER_TOKEN = 40
# llama.cpp reports the length of a text that does not fit only in the message of its error, for either of two limits.
_TOO_MANY_TOKENS = re.compile(r"input \((\d+) tokens\) is (?:too large|larger)")
_CUT_MARGIN = 0.95
_SILENT = -1
_MAX_FOLDER_CHARS = 70  # macOS allows 103 for the path of a socket
_POOLING_NONE = 0
_POOLING_RANK = 4

_HEADER_BYTES = 1 << 20
# An entry of the file's header: the end of its key, its type (uint32) and its value.
_NUMBER = re.compile(
    rb"\.(embedding_length|embedding_length_out|context_length|pooling_type)\x04\0\0\0(.{4})", re.DOTALL
)


def open_model(settings: LocalModelSettings) -> LlamaCppEmbedder:
    """Return the embedder for ``local.model_path``."""
    hint = "Set memory_search.local.model_path to a GGUF file."
    if not settings.model_path:
        raise EmbedderUnavailable("The provider llama_cpp has no model.", hint=hint)
    path = os.path.abspath(os.path.expanduser(settings.model_path))
    if not os.path.exists(path):
        raise EmbedderUnavailable(f"There is no model at {path}.", hint="Check memory_search.local.model_path.")
    if not path.lower().endswith(".gguf"):
        raise EmbedderUnavailable(f"{path} is not a GGUF file.", hint=f"{hint} 'kept models' offers others.")
    return LlamaCppEmbedder(path, settings)


class LlamaCppEmbedder:
    """Embedder for a GGUF file. The model is loaded by the first text. Thread-safe."""

    is_slow = True

    def __init__(self, path: str, settings: LocalModelSettings) -> None:
        require_packages("xllamacpp", extra="llama-cpp")
        self._lock = threading.Lock()
        self._server: Any = None
        self._path = path
        self._header = read_gguf_header(path)
        self._pooling = _choose_pooling(path, self._header, settings)
        self._prefixes: dict[Role, str] = {
            "query": settings.query_prefix or "",
            "document": settings.document_prefix or "",
        }
        self._max_tokens = min(settings.max_tokens, self._header.context_tokens)

    @cached_property
    def identity(self) -> Identity:
        recipe = (
            sample_digest([self._path]),
            self._pooling,
            self._prefixes["query"],
            self._prefixes["document"],
            str(self._max_tokens),
        )
        fingerprint = hashlib.sha256("\n".join(recipe).encode()).hexdigest()
        name = os.path.splitext(os.path.basename(self._path))[0]
        return Identity("llama_cpp", name, self._header.dims, f"gguf-1:{fingerprint}")

    @cached_property
    def calibration(self) -> Calibration:
        return measure_calibration(self)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        max_chars = self._max_tokens * _CHARS_PER_TOKEN
        # Tokenizers refuse lone surrogates.
        prefixed = [utf8_safe((self._prefixes[role] + text)[:max_chars]) for text in texts]
        return pack_unit_rows(map(self._embed_text, prefixed), self._header.dims)

    def _embed_text(self, text: str) -> list[float]:
        match self._request(text):
            case {"data": [{"embedding": [*vector]}]} if len(vector) == self._header.dims:
                return vector
            case {"error": {"message": str(message)}}:
                too_long = _TOO_MANY_TOKENS.search(message)
                if too_long is None:
                    raise self._failed(message)
                return self._embed_text(self._shorten(text, int(too_long[1])))
        raise self._failed(f"it did not give a vector of {self._header.dims} numbers")

    def _shorten(self, text: str, tokens: int) -> str:
        """Cut a text of too many tokens in proportion: the library counts tokens, but does not report their offsets."""
        keep_chars = int(len(text) * min(1.0, self._max_tokens / tokens) * _CUT_MARGIN)
        if keep_chars < 1:
            raise self._failed(f"a text of {tokens} tokens does not fit")
        return text[:keep_chars]

    def _request(self, text: str) -> Any:
        server = self._load()
        try:
            return server.handle_embeddings({"input": [text], "encoding_format": "float"})
        except (RuntimeError, ValueError, TypeError) as exc:
            raise self._failed(str(exc)) from exc

    def _failed(self, reason: str) -> EmbeddingFailed:
        return EmbeddingFailed(f"{self._path}: the model failed ({reason.rstrip('.')}).")

    def _load(self) -> Any:
        with self._lock:  # several threads may come first
            if self._server is None:
                self._server = self._start_server()
            return self._server

    def _start_server(self) -> Any:
        import xllamacpp

        folder = _make_socket_folder()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        params = xllamacpp.CommonParams()
        params.model.path = self._path
        params.embedding = True
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{self._pooling.upper()}")
        # A text is embedded in one step, so a step has to hold the longest one.
        params.n_ctx = params.n_batch = params.n_ubatch = self._max_tokens
        params.cpuparams.n_threads = max(1, min(_MAX_THREADS, (os.cpu_count() or 1) // 2))
        params.warmup = False
        params.offline = True
        params.verbosity = _SILENT
        params.hostnames = [os.path.join(folder, "llama.sock")]
        params.api_keys = [secrets.token_hex(16)]
        params.endpoint_slots = False
        params.ui = False
        try:
            return xllamacpp.Server(params)
        except RuntimeError as exc:
            raise _unusable(self._path, "llama.cpp cannot load it") from exc


def _choose_pooling(path: str, header: GgufHeader, settings: LocalModelSettings) -> str:
    """Return the pooling of the settings, else of the file, else the mean: models for writing text declare none."""
    if settings.pooling != "auto":
        return settings.pooling
    if header.pooling == _POOLING_RANK:
        raise _unusable(path, "it ranks pairs of texts and has no vectors")
    return "mean" if header.pooling in (None, _POOLING_NONE) else "unspecified"


def _make_socket_folder() -> str:
    """Create a folder that only its owner can enter, with a path short enough for a socket inside it."""
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="kept-", dir=parent if len(parent) <= _MAX_FOLDER_CHARS else "/tmp")


def _unusable(path: str, reason: str) -> EmbedderUnavailable:
    return EmbedderUnavailable(
        f"The embedding model cannot be used ({path}: {reason}).",
        hint="Fetch the file again, or set memory_search.local.model_path to another.",
    )


@frozen
class GgufHeader:
    dims: int
    context_tokens: int
    pooling: int | None
    """Pooling in llama.cpp's numbering; None if the file declares none, as models for writing text do."""


def read_gguf_header(path: str) -> GgufHeader:
    """Read dimensions, length and pooling from the first bytes of a file: loading the model costs seconds."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError as exc:
        raise _unusable(path, str(exc)) from exc
    if not head.startswith(b"GGUF"):
        raise _unusable(path, "it is not a GGUF file")
    numbers = {name.decode(): int.from_bytes(value, "little") for name, value in _NUMBER.findall(head)}
    dims = numbers.get("embedding_length_out") or numbers.get("embedding_length")
    if not dims:
        raise _unusable(path, "it does not declare the length of its vectors")
    return GgufHeader(dims, numbers.get("context_length") or 512, numbers.get("pooling_type"))


# scale

# Models differ: unrelated sentences have a cosine of 0.00 in some and of 0.39 in bge-small, so no
# constant serves all of them. Eight questions and the passages that answer them, each on another subject, give 8
# cosines of related texts and 56 of unrelated ones.
_PAIRS = (
    ("which port does the staging database use?", "Staging moved its database to port 5433 in March."),
    ("who is allergic to nuts?", "Anna cannot eat peanuts or almonds; she carries an adrenaline pen."),
    ("when is the rent due?", "The landlord wants the money on the third working day of each month."),
    ("how do I restart the printer queue?", "If print jobs are stuck, run cupsenable as root and try once more."),
    ("what did we decide about the logo?", "The board chose the green emblem over the older blue design."),
    ("where did the family go on holiday?", "In July they hired a cottage by the sea in Brittany."),
    ("why was the flight late?", "Fog over the airport held the plane back for two hours."),
    ("what does the cat weigh?", "At the vet's this morning Miso came to four and a half kilos."),
)

# Distance of floor and ceiling from the mean of their kind, in standard deviations. Both were chosen to give an English
# table of word vectors the 0.15 and 0.75 that retrieval sets gave it by hand: one `min_score` serves every model.
_FLOOR_DEVIATIONS = 2.3
_CEILING_DEVIATIONS = 2.85
_LEAST_SPREAD = 0.05


def measure_calibration(embedder: LlamaCppEmbedder) -> Calibration:
    """Return a floor above the cosines of unrelated texts and a ceiling above those of questions and answers."""
    questions = [*embedder.embed([question for question, _ in _PAIRS], role="query")]
    passages = [*embedder.embed([passage for _, passage in _PAIRS], role="document")]
    cosines = [
        [sum(map(mul, memoryview(question).cast("f"), memoryview(passage).cast("f"))) for passage in passages]
        for question in questions
    ]
    related = [row[number] for number, row in enumerate(cosines)]
    unrelated = [cosine for number, row in enumerate(cosines) for at, cosine in enumerate(row) if at != number]
    floor = fmean(unrelated) + _FLOOR_DEVIATIONS * pstdev(unrelated)
    ceiling = min(1.0, fmean(related) + _CEILING_DEVIATIONS * pstdev(related))
    if ceiling - floor < _LEAST_SPREAD:
        return Calibration()  # a model that cannot separate these has no scale
    return Calibration(floor=floor, ceiling=ceiling)
