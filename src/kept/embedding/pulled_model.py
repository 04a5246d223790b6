"""Embedders of the models that `kept models pull` has brought into the models folder."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from kept.config import LocalModelSettings, MemorySearchSettings
from kept.embedding.base import Calibration, Embedder
from kept.embedding.model_catalogue import (
    BUILT_IN,
    CATALOGUE,
    CatalogueModel,
    find_automatic,
    is_pulled,
    model_folder,
)
from kept.embedding.static import StaticEmbedder
from kept.remote_errors import EmbedderUnavailable, EmbeddingError


def open_chosen(models_folder: str, settings: MemorySearchSettings) -> Embedder:
    """Return the embedder that ``memory_search.model`` names, or the one that `auto` means."""
    if settings.model is None:
        model = find_automatic(models_folder)
        return open_pulled(models_folder, model, settings.local) if model else StaticEmbedder()
    if settings.model == BUILT_IN:
        return StaticEmbedder()
    chosen = CATALOGUE.get(settings.model)
    if chosen is None or chosen.kind != "embedder":
        raise EmbedderUnavailable(
            f"memory_search.model: there is no local model '{settings.model}'.",
            hint="'kept models' lists them; 'kept models use default' removes the choice.",
        )
    if not is_pulled(models_folder, chosen):
        raise EmbedderUnavailable(
            f"The model {chosen.name} is not on this machine.", hint=f"Download it: kept models pull {chosen.name}"
        )
    return open_pulled(models_folder, chosen, settings.local)


def open_pulled(models_folder: str, model: CatalogueModel, settings: LocalModelSettings) -> Embedder:
    require_packages_of(model)
    if model.opener:
        module, _, name = model.opener.partition(":")
        opener = getattr(importlib.import_module(f"kept.embedding.{module}"), name)
        return cast(Embedder, opener(model_folder(models_folder, model)))
    # Imported here: the other models do without them.
    from kept.embedding.local_model import WEIGHT
    from kept.embedding.onnx.embedder import OnnxEmbedder

    # The scale was measured with the model's own prefixes, pooling and length.
    is_plain = settings == LocalModelSettings(model_path=settings.model_path, mirror_url=settings.mirror_url)
    calibration = Calibration(*model.scale, weight=model.weight or WEIGHT) if model.scale and is_plain else None
    if settings.query_prefix is None:
        settings = replace(settings, query_prefix=model.query_prefix)
    folder = model_folder(models_folder, model)
    return OnnxEmbedder(folder, settings, calibration=calibration, languages=model.languages)


def require_packages_of(model: CatalogueModel) -> None:
    """Raise EmbedderUnavailable if a package that a model needs is not installed."""
    missing = model.missing_packages()
    if missing:
        raise EmbedderUnavailable(
            f"The model {model.name} needs the package {missing[0]}, which is not installed.",
            hint="Install it: pip install 'kept[neural]'",
        )


def iter_pulled(models_folder: str, settings: LocalModelSettings) -> Iterator[Embedder]:
    """Yield the embedder of every pulled model that can run."""
    for model in CATALOGUE.values():
        if model.kind != "embedder" or model.is_built_in or not is_pulled(models_folder, model):
            continue
        try:
            yield open_pulled(models_folder, model, settings)
        except EmbeddingError:
            continue  # a package is missing, or a file is damaged: it cannot answer
