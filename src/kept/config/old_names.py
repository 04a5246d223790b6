"""Names of settings in OpenClaw's documents that Kept does not have, and what becomes of them.

Files that contain them are accepted as they are. A notice says what each of them does here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kept.base.values import frozen
from kept.config.gateway_settings import ResponderSettings
from kept.config.search_settings import LocalModelSettings, MemorySearchSettings, QuerySettings, VectorStoreSettings

Tree = dict[str, Any]


@frozen
class OldName:
    notice: str
    """What becomes of it, after its name and a colon."""
    translate: Callable[[Tree, Any], object] = lambda tree, value: None
    """Puts what it means into the normalised tree of its group, unless that says something itself."""


def _set_sources(tree: Tree, value: Any) -> None:
    """Leave conversations out if an experiment with them is off, which OpenClaw had them as."""
    if isinstance(value, dict) and value.get("sessionMemory", value.get("session_memory")) is False:
        tree.setdefault("sources", ["memory"])


OLD_NAMES: dict[type, dict[str, OldName]] = {
    ResponderSettings: {"memory_fts_enabled": OldName("Kept always searches by word; the setting has no effect.")},
    MemorySearchSettings: {
        "experimental": OldName("sessionMemory: false is read as memory_search.sources: [memory].", _set_sources)
    },
    QuerySettings: {
        "top_k": OldName(
            "read as memory_search.query.max_results.", lambda tree, value: tree.setdefault("max_results", value)
        )
    },
    VectorStoreSettings: {"extension_path": OldName("Kept needs no SQLite extension; the setting has no effect.")},
    LocalModelSettings: {
        "model_cache_dir": OldName("'kept models' keeps models below Kept's home; the setting has no effect.")
    },
}


def find_old_name(kind: type, key: str) -> OldName | None:
    return OLD_NAMES.get(kind, {}).get(key)
