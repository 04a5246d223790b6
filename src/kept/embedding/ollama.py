"""Ollama: models on this machine, or on another one in the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.base.net import ProviderAccount, Timeouts, parse_endpoint
from kept.base.remote_errors import EmbedderUnavailable, EndpointDown, RemoteError, RequestRefused
from kept.config import MemorySearchSettings, ProviderKeys
from kept.embedding.base import Calibration, Role
from kept.embedding.remote import KnownModel, RemoteEmbedder, get_list

_PORT = 11434
_PREFIXES: dict[str, dict[Role, str]] = {
    "nomic-embed-text": {"query": "search_query: ", "document": "search_document: "},
}
"""Prefixes that a model was trained with. Ollama does not add them."""
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

    _has_embed_api = True

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
        if self._has_embed_api:
            try:
                return self._request_together(prefixed, role)
            except RequestRefused as exc:
                if exc.status != 404 or "model" in exc.detail.lower():
                    raise
                self._has_embed_api = False  # a server before 0.3.4
        return [self._request_alone(text, role) for text in prefixed]

    def _request_together(self, texts: list[str], role: Role) -> list[Any]:
        body: dict[str, Any] = {"model": self.model, "input": texts}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return get_list(self._post("/api/embed", body, role, texts), "embeddings", self.origin)

    def _request_alone(self, text: str, role: Role) -> list[Any]:
        body = {"model": self.model, "prompt": text}
        return get_list(self._post("/api/embeddings", body, role, [text]), "embedding", self.origin)

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
