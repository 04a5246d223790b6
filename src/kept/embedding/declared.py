"""What a folder in the layout of sentence-transformers declares about its model."""

from __future__ import annotations

import json
import os
from typing import Any, Literal, cast

from kept.config.schema import Pooling
from kept.config.settings_file import read_settings
from kept.errors import ConfigError, EmbedderUnavailable
from kept.values import frozen

TokenPooling = Literal["mean", "cls", "last"]
_POOLING_KEYS: dict[str, TokenPooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES: dict[str, TokenPooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}

# Families that pool by their first token, for folders where the file that says so was left out.
_CLS_FAMILIES = ("bge-", "bge_", "arctic-embed", "mxbai-embed")

_QUERY_PROMPTS = ("query", "search_query", "s2p_query")
_DOCUMENT_PROMPTS = ("document", "passage", "search_document", "corpus")

# These number positions from the padding token's id plus one, which takes that many from the table.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl")
_ABSURD_TOKENS = 1_000_000
_MAX_BYTES = 20_000_000


@frozen
class Declared:
    pooling: TokenPooling
    query_prefix: str = ""
    document_prefix: str = ""
    max_tokens: int | None = None
    dense: bool = False
    """A layer follows the pooling. It is part of the vectors, and only some exports have it inside."""


def read_declared(folder: str, *, pooling: Pooling = "auto") -> Declared:
    """``pooling``, where it is not `auto`, goes before what the folder says, known or not."""
    modules = _modules(folder)
    prompts = _read(folder, "config_sentence_transformers.json")
    return Declared(
        pooling=_pooling(folder, modules) if pooling == "auto" else pooling,
        query_prefix=_prompt(prompts, _QUERY_PROMPTS),
        document_prefix=_prompt(prompts, _DOCUMENT_PROMPTS),
        max_tokens=_max_tokens(folder),
        dense=any(kind == "Dense" for kind, _ in modules),
    )


def _modules(folder: str) -> list[tuple[str, str]]:
    """The layers that a sentence model is made of: the last part of each one's type, and its folder."""
    listed = _read_any(folder, "modules.json")
    if not isinstance(listed, list):
        return [("Pooling", "1_Pooling")]
    entries = [entry for entry in listed if isinstance(entry, dict)]
    return [(str(entry.get("type", "")).rpartition(".")[2], str(entry.get("path", ""))) for entry in entries]


def _pooling(folder: str, modules: list[tuple[str, str]]) -> TokenPooling:
    place = next((path for kind, path in modules if kind == "Pooling"), "1_Pooling")
    config = _read(folder, os.path.join(place, "config.json"))
    if not config:
        return "cls" if _is_cls_family(folder) else "mean"
    if "pooling_mode" in config:
        chosen = [str(config["pooling_mode"])]
        known = [_POOLING_NAMES[name] for name in chosen if name in _POOLING_NAMES]
    else:
        chosen = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
        known = [_POOLING_KEYS[key] for key in chosen if key in _POOLING_KEYS]
    if len(chosen) != 1 or len(known) != 1:
        raise EmbedderUnavailable(
            f"{folder}: the model pools by {', '.join(chosen) or 'nothing'}, which Kept does not do.",
            hint="Set memory_search.local.pooling to mean, cls or last, or use another model.",
        )
    return known[0]


def _is_cls_family(folder: str) -> bool:
    names = (os.path.basename(folder), str(_read(folder, "config.json").get("_name_or_path", "")))
    return any(family in name.lower() for name in names for family in _CLS_FAMILIES)


def _prompt(config: dict[str, Any], names: tuple[str, ...]) -> str:
    prompts = config.get("prompts")
    if not isinstance(prompts, dict):
        return ""
    for name in (*names, config.get("default_prompt_name")):
        if isinstance(prompts.get(name), str):
            return cast(str, prompts[name])
    return ""


def _max_tokens(folder: str) -> int | None:
    """The least of what its files say; the tokenizer's file may say 10³⁰, which says nothing."""
    config = _read(folder, "config.json")
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in _OFFSET_POSITIONS:
        positions -= int(config.get("pad_token_id") or 0) + 1
    said = (
        _read(folder, "sentence_bert_config.json").get("max_seq_length"),
        _read(folder, "tokenizer_config.json").get("model_max_length"),
        positions,
    )
    sane = [int(value) for value in said if isinstance(value, int | float) and 0 < value < _ABSURD_TOKENS]
    return min(sane, default=None)


def _read(folder: str, name: str) -> dict[str, Any]:
    tree = _read_any(folder, name)
    return tree if isinstance(tree, dict) else {}


def _read_any(folder: str, name: str) -> Any:
    path = os.path.join(folder, name)
    try:
        raw = read_settings(path, max_bytes=_MAX_BYTES)
        return None if raw is None else json.loads(raw)
    except (ConfigError, ValueError, RecursionError) as exc:
        raise EmbedderUnavailable(
            f"{path}: cannot be read ({exc}).", hint="Fetch the model's files again, or mend this one."
        ) from exc
