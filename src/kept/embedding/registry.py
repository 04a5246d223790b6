"""From the name of a provider to the thing itself. Nothing of a provider is imported before it is chosen.

Another package adds a provider with an entry point in the group `kept.embedders`: its name is that of the provider,
and it is called with the settings (a MemorySearch) and returns an Embedder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kept.config import MemorySearch, ProviderKeys, Remote
from kept.embedding.base import Embedder
from kept.errors import EmbedderUnavailable, EmbeddingError, UnknownProvider
from kept.values import frozen

if TYPE_CHECKING:
    from kept.embedding.remote import RemoteEmbedder

ENTRY_POINTS = "kept.embedders"
_REMOTE = {
    "openai": ("kept.embedding.openai", "OpenAIEmbedder"),
    "gemini": ("kept.embedding.gemini", "GeminiEmbedder"),
    "voyage": ("kept.embedding.voyage", "VoyageEmbedder"),
    "ollama": ("kept.embedding.ollama", "OllamaEmbedder"),
}
PROVIDERS = ("auto", "local", "openai", "gemini", "voyage", "ollama", "llama_cpp", "none")


@frozen
class Chain:
    """The embedders that may be used, the preferred one first, and why others that were named cannot be."""

    embedders: tuple[Embedder, ...]
    problems: tuple[str, ...]


def choose_chain(settings: MemorySearch, keys: ProviderKeys | None = None) -> Chain:
    """The provider and its fallback. One that cannot be used must not stand in the way of the other, or of words."""
    if not settings.store.vector.enabled:
        return Chain((), ())
    # Endpoint, model and key that are given belong to the first; the fallback is used as it comes.
    plain = replace(settings, model=None, dimensions=None, remote=Remote())
    wanted = ((settings.provider, settings), (settings.fallback, plain))
    return _usable([partial(make_embedder, name, own, keys or ProviderKeys()) for name, own in wanted])


def chain_of(embedder: Embedder) -> Chain:
    """One that somebody else made, if it can be used."""
    return _usable([lambda: embedder])


def _usable(makers: list[Callable[[], Embedder | None]]) -> Chain:
    found: list[Embedder] = []
    problems: list[str] = []
    for make in makers:
        try:
            embedder = make()
            if embedder is not None and embedder.identity.key not in {one.identity.key for one in found}:
                found.append(embedder)
        except UnknownProvider:
            raise  # a misspelt setting is an error, like any other
        except EmbeddingError as exc:
            problems.append(f"{exc.message} {exc.hint}".rstrip())
    return Chain(tuple(found), tuple(problems))


def make_embedder(name: str, settings: MemorySearch, keys: ProviderKeys) -> Embedder | None:
    """The embedder of that name, or None for words alone.

    `auto` is the built-in model, which always works: no text leaves the machine unless a remote provider is named.
    """
    match name:
        case "none":
            return None
        case "auto" | "local" | "llama_cpp" as name if settings.local.model_path or name == "llama_cpp":
            from kept.embedding.local_model import open_local_model

            return open_local_model(settings.local, gguf_only=name == "llama_cpp")
        case "auto" | "local":
            from kept.embedding.static import StaticEmbedder

            return StaticEmbedder()
        case "openai" | "gemini" | "voyage" | "ollama":
            return remote_class(name).from_settings(settings, keys)
        case _:
            return _make_added(name, settings)


def remote_class(name: str) -> type[RemoteEmbedder]:
    module, kind = _REMOTE[name]
    found: type[RemoteEmbedder] = getattr(importlib.import_module(module), kind)
    return found


def added_providers() -> list[str]:
    """The names of those that other packages bring."""
    from importlib.metadata import entry_points

    return sorted(point.name for point in entry_points(group=ENTRY_POINTS))


def _make_added(name: str, settings: MemorySearch) -> Embedder:
    """One that another package brings. What goes wrong in there is the package's, and must not look like ours."""
    from importlib.metadata import entry_points

    added = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in added:
        raise _unknown(name, [*PROVIDERS, *added])
    try:
        made: Any = added[name].load()(settings)
    except EmbeddingError:
        raise
    except Exception as exc:
        raise EmbedderUnavailable(
            f"The embedding provider '{name}' could not be started ({type(exc).__name__}).",
            hint=f"It comes from {added[name].value}; see its documentation.",
        ) from exc
    if not isinstance(made, Embedder):
        raise EmbedderUnavailable(
            f"The embedding provider '{name}' does not give an embedder.",
            hint=f"{added[name].value} has to return an object with identity, calibration and embed.",
        )
    return made


def default_model(name: str) -> tuple[str | None, int | None]:
    """The model a provider uses unless told otherwise, and its dimensions, where they are known before asking."""
    if name not in _REMOTE:
        return None, None
    kind = remote_class(name)
    return kind.default_model, kind.known_dims.get(kind.default_model)


def _unknown(name: str, known: list[str]) -> UnknownProvider:
    import difflib

    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    ask = f"Did you mean '{near[0]}'?" if near else f"Choose one of: {', '.join(known)}."
    return UnknownProvider(f"memory_search.provider: there is no embedding provider '{name}'.", hint=ask)
