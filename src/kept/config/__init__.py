"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

The only package that reads the environment.
"""

from kept.config.keys import KEY_VARIABLES, ProviderKeys
from kept.config.layers import Layer, LoadedConfig, load_config
from kept.config.schema import (
    AgentSettings,
    BatchSettings,
    CacheSettings,
    ChunkingSettings,
    Config,
    HttpSettings,
    HybridSettings,
    LocalModelSettings,
    MemorySearchSettings,
    QuerySettings,
    RemoteSettings,
    RerankSettings,
    ResetOverrideSettings,
    ResetSettings,
    ResponderSettings,
    SyncSettings,
)

__all__ = [
    "KEY_VARIABLES",
    "AgentSettings",
    "BatchSettings",
    "CacheSettings",
    "ChunkingSettings",
    "Config",
    "HttpSettings",
    "HybridSettings",
    "Layer",
    "LoadedConfig",
    "LocalModelSettings",
    "MemorySearchSettings",
    "ProviderKeys",
    "QuerySettings",
    "RemoteSettings",
    "RerankSettings",
    "ResetOverrideSettings",
    "ResetSettings",
    "ResponderSettings",
    "SyncSettings",
    "load_config",
]
