"""Ollama: models on this machine, or on one nearby."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kept.config import MemorySearch, ProviderKeys
from kept.embedding.base import Calibration, Role
from kept.embedding.remote import Account, RemoteEmbedder
from kept.errors import BadAnswer, RequestRefused
from kept.net import parse_endpoint

BASE_URL = "http://127.0.0.1:11434"
_PORT = 11434
_PREFIXES: dict[str, dict[Role, str]] = {
    "nomic-embed-text": {"query": "search_query: ", "document": "search_document: "},
}
"""What a model was trained to see before a text. Ollama does not add it."""


class OllamaEmbedder(RemoteEmbedder):
    provider = "ollama"
    default_model = "nomic-embed-text"
    known_dims: ClassVar[Mapping[str, int]] = {
        "nomic-embed-text": 768,
        "mxbai-embed-large": 1024,
        "all-minilm": 384,
        "bge-m3": 1024,
        "embeddinggemma": 768,
    }
    # Estimates for nomic-embed-text from published examples, until they are measured.
    calibration = Calibration(floor=0.45, ceiling=0.85, weight=0.5)

    _speaks_embed = True

    @classmethod
    def from_settings(cls, settings: MemorySearch, keys: ProviderKeys) -> OllamaEmbedder:
        remote = settings.remote
        url = remote.base_url or BASE_URL
        if keys.ollama_host and not remote.base_url:
            url = host_url(keys.ollama_host)
            parse_endpoint(url, setting="OLLAMA_HOST")
        account = Account(url, remote.api_key, remote.headers)
        return cls(account, model=settings.model, dimensions=settings.dimensions)

    def _ask(self, texts: Sequence[str], role: Role) -> Iterable[Any]:
        prefix = _PREFIXES.get(self.model.partition(":")[0], {}).get(role, "")
        whole = [prefix + text for text in texts]
        if self._speaks_embed:
            try:
                return self._ask_together(whole, role)
            except RequestRefused as exc:
                if exc.status != 404 or "model" in exc.detail.lower():
                    raise
                self._speaks_embed = False  # before 0.3.4 there was no such address
        return [self._ask_alone(text, role) for text in whole]

    def _ask_together(self, texts: list[str], role: Role) -> Iterable[Any]:
        body: dict[str, Any] = {"model": self.model, "input": texts}
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return self._list_in(self._post("/api/embed", body, role, texts), "embeddings")

    def _ask_alone(self, text: str, role: Role) -> Any:
        return self._list_in(
            self._post("/api/embeddings", {"model": self.model, "prompt": text}, role, [text]), "embedding"
        )

    def _list_in(self, answer: Any, name: str) -> list[Any]:
        found = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(found, list):
            raise BadAnswer(f"{self._origin} answered without '{name}'.")
        return found

    def _not_found_hint(self) -> str:
        return f"Get the model with 'ollama pull {self.model}', or check memory_search.remote.base_url."


def host_url(host: str) -> str:
    """An address from OLLAMA_HOST, which may be a host, a port or both, and what a server listens on rather than
    where it is found."""
    scheme, has_scheme, rest = host.rpartition("://")
    name, slash, path = rest.partition("/")
    bare, colon, port = name.rpartition(":")
    if not colon or port.endswith("]"):
        bare, port = name, ""
    bare = "127.0.0.1" if bare in ("", "0.0.0.0", "[::]") else bare
    # With a scheme, a port that is left out is that of the scheme, as Ollama's own client has it.
    port = port or ("" if has_scheme else str(_PORT))
    return f"{scheme or 'http'}://{bare}{':' + port if port else ''}{slash}{path}"
