"""Embedders of providers: OpenAI, every server that speaks its protocol (LM Studio, vLLM, llama.cpp, Mistral and
others), Voyage AI, whose protocol is nearly the same, Gemini and Ollama."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from kept.base.limits import as_dict
from kept.base.net import ProviderAccount, Timeouts, parse_endpoint
from kept.base.remote_errors import BadAnswer, EmbedderUnavailable, EndpointDown, RemoteError
from kept.config.agent_config import ProviderKeys
from kept.config.schema import MemorySearchSettings
from kept.embedding.base import Calibration, Role
from kept.embedding.remote import KnownModel, RemoteEmbedder, get_list


class OpenAIEmbedder(RemoteEmbedder):
    provider = "openai"
    home_url = "https://api.openai.com/v1"
    default_model = "text-embedding-3-small"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "text-embedding-3-small": KnownModel(1536, 0.02),
        "text-embedding-3-large": KnownModel(3072, 0.13),
        "text-embedding-ada-002": KnownModel(1536, 0.10),
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.15, ceiling=0.65, weight=0.5)

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        body = {**self.parameters(role), "input": list(texts)}
        return order_by_index(self._post("/embeddings", body, role, texts), len(texts), self.origin)

    def parameters(self, role: Role) -> dict[str, Any]:
        """Return a request without its texts."""
        size = {"dimensions": self.dimensions} if self.dimensions else {}
        return {"model": self.model, "encoding_format": "float", **size}


class VoyageEmbedder(OpenAIEmbedder):
    """Embedder of Voyage, which itself cuts texts that are too long (its `truncation` is on by default)."""

    provider = "voyage"
    home_url = "https://api.voyageai.com/v1"
    default_model = "voyage-4-large"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "voyage-4-large": KnownModel(1024, 0.12),
        "voyage-4": KnownModel(1024, 0.06),
        "voyage-4-lite": KnownModel(1024, 0.02),
        "voyage-3-large": KnownModel(1024, 0.18),
        "voyage-3.5": KnownModel(1024, 0.06),
        "voyage-3.5-lite": KnownModel(1024, 0.02),
        "voyage-code-3": KnownModel(1024),
    }
    # Estimated from published examples, not measured.
    calibration = Calibration(floor=0.25, ceiling=0.75, weight=0.5)

    def parameters(self, role: Role) -> dict[str, Any]:
        size = {"output_dimension": self.dimensions} if self.dimensions else {}
        return {"model": self.model, "input_type": role, **size}


def order_by_index(answer: Any, count: int, origin: str) -> list[Any]:
    """Return the vectors of `data` in the order of their `index`. Servers that omit it keep the order of the texts."""
    entries = [as_dict(entry) for entry in get_list(answer, "data", origin)]
    vectors = {str(entry.get("index", at)): entry.get("embedding") for at, entry in enumerate(entries)}
    if len(entries) != count:
        return entries  # the caller says so
    if set(vectors) != set(map(str, range(count))):
        raise BadAnswer(f"{origin} gave vectors that cannot be matched to their texts.")
    return [vectors[str(index)] for index in range(count)]


_TASKS: dict[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


class GeminiEmbedder(RemoteEmbedder):
    provider = "gemini"
    home_url = "https://generativelanguage.googleapis.com/v1beta"
    default_model = "gemini-embedding-001"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "gemini-embedding-001": KnownModel(3072, 0.15),
        "text-embedding-004": KnownModel(768),
    }
    max_texts = 100
    # Estimated from published examples, not measured: unrelated texts are far from 0 here.
    calibration = Calibration(floor=0.55, ceiling=0.85, weight=0.5)

    def _auth_headers(self, key: str | None) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        requests = [self.request_body(text, role) for text in texts]
        answer = self._post(f"{self.model_path}:batchEmbedContents", {"requests": requests}, role, texts)
        embeddings = get_list(answer, "embeddings", self.origin)
        return [get_list(embedding, "values", self.origin) for embedding in embeddings]

    @property
    def model_path(self) -> str:
        return f"/models/{quote(self.model, safe='')}"

    def request_body(self, text: str, role: Role) -> dict[str, Any]:
        """Return an EmbedContentRequest."""
        body: dict[str, Any] = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": _TASKS[role],
        }
        if self.dimensions:
            body["outputDimensionality"] = self.dimensions
        return body


_PORT = 11434
# Prefixes that a model was trained with. Ollama does not add them.
_PREFIXES: dict[str, dict[Role, str]] = {
    "nomic-embed-text": {"query": "search_query: ", "document": "search_document: "},
}
_REACHABLE_TIMEOUTS = Timeouts(1.0, 1.0)


class OllamaEmbedder(RemoteEmbedder):
    provider = "ollama"
    home_url = f"http://127.0.0.1:{_PORT}"
    default_model = "nomic-embed-text"
    models: ClassVar[Mapping[str, KnownModel]] = {
        "nomic-embed-text": KnownModel(768),
        "mxbai-embed-large": KnownModel(1024),
        "all-minilm": KnownModel(384),
        "bge-m3": KnownModel(1024),
        "embeddinggemma": KnownModel(768),
    }
    is_free = True
    # Estimated for nomic-embed-text from published examples, not measured.
    calibration = Calibration(floor=0.45, ceiling=0.85, weight=0.5)

    @classmethod
    def _account(cls, settings: MemorySearchSettings, keys: ProviderKeys) -> ProviderAccount:
        remote = settings.remote
        url = remote.base_url or cls.home_url
        if keys.ollama_host and not remote.base_url:
            url = host_url(keys.ollama_host)
            parse_endpoint(url, setting="OLLAMA_HOST")
        return ProviderAccount(url, remote.api_key, remote.headers)

    def check_reachable(self) -> None:
        try:
            self.client.get_json("/api/version", timeouts=_REACHABLE_TIMEOUTS)
        except EndpointDown as exc:
            raise EmbedderUnavailable(
                f"No server answers at {self.origin}: start it with 'ollama serve', or set OLLAMA_HOST or"
                " memory_search.remote.base_url."
            ) from exc
        except RemoteError:
            pass  # a server that refuses the request is running

    def request_vectors(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        prefix = _PREFIXES.get(self.model.partition(":")[0], {}).get(role, "")
        prefixed = [prefix + text for text in texts]
        body: dict[str, Any] = {"model": self.model, "input": prefixed}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return get_list(self._post("/api/embed", body, role, prefixed), "embeddings", self.origin)

    def _not_found_hint(self) -> str:
        return f"Get the model with 'ollama pull {self.model}', or check memory_search.remote.base_url."


def host_url(host: str) -> str:
    """Return the address that OLLAMA_HOST means.

    It may be a host, a port or both, and names the address a server listens on, such as 0.0.0.0, rather than the one
    a client connects to.
    """
    scheme, has_scheme, rest = host.rpartition("://")
    name, slash, path = rest.partition("/")
    bare, colon, port = name.rpartition(":")
    if not colon or port.endswith("]"):
        bare, port = name, ""
    bare = "127.0.0.1" if bare in ("", "0.0.0.0", "[::]") else bare
    # With a scheme, a missing port is the scheme's default, as in Ollama's own client.
    port = port or ("" if has_scheme else str(_PORT))
    return f"{scheme or 'http'}://{bare}{':' + port if port else ''}{slash}{path}"
