"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

`schema` and `gateway_settings` list every setting. `read` turns a YAML
file into instances of these classes. `layers` folds the file, the environment and the flags, and finds the agents.
`setting` knows single settings by their names, and `change_settings` writes them to the file. `keys` are the keys of
providers, with all else that is secret, and `agent_paths` names the files of an agent.
"""

from kept.config.gateway_settings import HttpSettings, ResponderSettings
from kept.config.keys import KEY_VARIABLES, ProviderKeys
from kept.config.layers import ConfigFile, Layer, LoadedConfig, load_config
from kept.config.schema import (
    AgentSettings,
    BatchSettings,
    CacheSettings,
    ChunkingSettings,
    Config,
    HybridSettings,
    LocalModelSettings,
    McpServerSettings,
    MemorySearchSettings,
    QuerySettings,
    RemoteSettings,
    RerankSettings,
    ResetOverrideSettings,
    ResetSettings,
    SyncSettings,
)

__all__ = [
    "KEY_VARIABLES",
    "AgentSettings",
    "BatchSettings",
    "CacheSettings",
    "ChunkingSettings",
    "Config",
    "ConfigFile",
    "HttpSettings",
    "HybridSettings",
    "Layer",
    "LoadedConfig",
    "LocalModelSettings",
    "McpServerSettings",
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
