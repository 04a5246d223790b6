"""Pooling, prompts and length that a folder in the layout of sentence-transformers declares for its model."""

from __future__ import annotations

import json
import os
from typing import Any, Literal, cast

from kept.config.search_settings import Pooling
from kept.config.settings_file import read_settings
from kept.errors import ConfigError
from kept.remote_errors import EmbedderUnavailable
from kept.values import frozen

TokenPooling = Literal["mean", "cls", "last"]
_POOLING_KEYS: dict[str, TokenPooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES: dict[str, TokenPooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}

# Families that pool by their first token, for folders without the file that declares it.
_CLS_FAMILIES = ("bge-", "bge_", "arctic-embed", "mxbai-embed")

_QUERY_PROMPTS = ("query", "search_query", "s2p_query")
_DOCUMENT_PROMPTS = ("document", "passage", "search_document", "corpus")

# These number positions from the padding token's id plus one, so that many positions of the table are not usable.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")
_ABSURD_TOKENS = 1_000_000
_MAX_BYTES = 20_000_000


@frozen
class ModelDeclaration:
    pooling: TokenPooling
    query_prefix: str = ""
    document_prefix: str = ""
    max_tokens: int | None = None
    has_dense_layer: bool = False
    """A dense layer follows the pooling. It is part of the vectors, and only some exports include it."""


def read_declaration(folder: str, *, pooling: Pooling = "auto") -> ModelDeclaration:
    """Read what a folder declares. ``pooling`` overrides the folder unless it is `auto`."""
    modules = _read_modules(folder)
    prompts = _read_object(folder, "config_sentence_transformers.json")
    return ModelDeclaration(
        pooling=_read_pooling(folder, modules) if pooling == "auto" else pooling,
        query_prefix=_find_prompt(prompts, _QUERY_PROMPTS),
        document_prefix=_find_prompt(prompts, _DOCUMENT_PROMPTS),
        max_tokens=_read_max_tokens(folder),
        has_dense_layer=any(kind == "Dense" for kind, _ in modules),
    )


def _read_modules(folder: str) -> list[tuple[str, str]]:
    """Return the layers of a sentence model: the last part of each one's type, and its folder."""
    modules = _read_json(folder, "modules.json")
    if not isinstance(modules, list):
        return [("Pooling", "1_Pooling")]
    entries = [entry for entry in modules if isinstance(entry, dict)]
    return [(str(entry.get("type", "")).rpartition(".")[2], str(entry.get("path", ""))) for entry in entries]


def _read_pooling(folder: str, modules: list[tuple[str, str]]) -> TokenPooling:
    pooling_folder = next((path for kind, path in modules if kind == "Pooling"), "1_Pooling")
    config = _read_object(folder, os.path.join(pooling_folder, "config.json"))
    if not config:
        return "cls" if _is_cls_family(folder) else "mean"
    if "pooling_mode" in config:
        declared = [str(config["pooling_mode"])]
        supported = [_POOLING_NAMES[name] for name in declared if name in _POOLING_NAMES]
    else:
        declared = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
        supported = [_POOLING_KEYS[key] for key in declared if key in _POOLING_KEYS]
    if len(declared) != 1 or len(supported) != 1:
        raise EmbedderUnavailable(
            f"{folder}: the model pools by {', '.join(declared) or 'nothing'}, which Kept does not support.",
            hint="Set memory_search.local.pooling to mean, cls or last, or use another model.",
        )
    return supported[0]


def _is_cls_family(folder: str) -> bool:
    names = (os.path.basename(folder), str(_read_object(folder, "config.json").get("_name_or_path", "")))
    return any(family in name.lower() for name in names for family in _CLS_FAMILIES)


def _find_prompt(config: dict[str, Any], names: tuple[str, ...]) -> str:
    prompts = config.get("prompts")
    if not isinstance(prompts, dict):
        return ""
    for name in (*names, config.get("default_prompt_name")):
        if isinstance(prompts.get(name), str):
            return cast(str, prompts[name])
    return ""


def _read_max_tokens(folder: str) -> int | None:
    """Return the smallest limit in the files. The tokenizer's file may say 10³⁰, which means no limit."""
    config = _read_object(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(config.get("pad_token_id") or 0) + 1
    limits = (
        _read_object(folder, "sentence_bert_config.json").get("max_seq_length"),
        _read_object(folder, "tokenizer_config.json").get("model_max_length"),
        positions,
    )
    sane = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < _ABSURD_TOKENS]
    return min(sane, default=None)


def _read_object(folder: str, name: str) -> dict[str, Any]:
    tree = _read_json(folder, name)
    return tree if isinstance(tree, dict) else {}


def _read_json(folder: str, name: str) -> Any:
    path = os.path.join(folder, name)
    try:
        raw = read_settings(path, max_bytes=_MAX_BYTES)
        return None if raw is None else json.loads(raw)
    except (ConfigError, ValueError, RecursionError) as exc:
        raise EmbedderUnavailable(
            f"{path}: cannot be read ({exc}).", hint="Fetch the model's files again, or correct this one."
        ) from exc
