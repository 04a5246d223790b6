"""Pooling, prompts and length that a folder in the layout of sentence-transformers declares for its model."""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from kept.config.search_settings import Pooling
from kept.config.settings_file import read_settings
from kept.errors import ConfigError
from kept.remote_errors import EmbedderUnavailable
from kept.values import frozen

TokenPooling = Literal["mean", "cls", "last"]
_POOLING: dict[str, TokenPooling] = {
    "mean": "mean",
    "mean_tokens": "mean",
    "cls": "cls",
    "cls_token": "cls",
    "lasttoken": "last",
}

# Families that pool by their first token, for folders without the file that declares it.
_CLS_FAMILIES = ("bge-", "bge_", "arctic-embed", "mxbai-embed")

_QUERY_PROMPTS = ("query", "search_query")
_DOCUMENT_PROMPTS = ("document", "passage", "search_document")
_WIDTHS = ("hidden_size", "dim", "d_model")

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
    width: int | None = None
    """Length of the model's token vectors."""


def read_declaration(folder: str, *, pooling: Pooling = "auto") -> ModelDeclaration:
    """Read what a folder declares. ``pooling`` overrides the folder unless it is `auto`."""
    prompts = _read_object(folder, "config_sentence_transformers.json")
    return ModelDeclaration(
        pooling=_read_pooling(folder) if pooling == "auto" else pooling,
        query_prefix=_find_prompt(prompts, _QUERY_PROMPTS),
        document_prefix=_find_prompt(prompts, _DOCUMENT_PROMPTS),
        max_tokens=_read_max_tokens(folder),
        width=_read_width(folder),
    )


def _read_pooling(folder: str) -> TokenPooling:
    config = _read_object(folder, os.path.join("1_Pooling", "config.json"))
    if not config:
        return "cls" if _is_cls_family(folder) else "mean"
    modes = [key.removeprefix("pooling_mode_") for key, value in config.items() if value is True]
    declared = [str(config.get("pooling_mode") or ", ".join(modes))]
    supported = [_POOLING[name] for name in declared if name in _POOLING]
    if not supported:
        raise EmbedderUnavailable(
            f"{folder}: the model pools by {declared[0] or 'nothing'}, which Kept does not support.",
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
    return next((prompts[name] for name in names if isinstance(prompts.get(name), str)), "")


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


def _read_width(folder: str) -> int | None:
    if os.path.isdir(os.path.join(folder, "2_Dense")):
        return None  # vectors have the width of that layer
    config = _read_object(folder, "config.json")
    return next((width for name in _WIDTHS if isinstance(width := config.get(name), int) and width > 0), None)


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
