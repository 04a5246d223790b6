"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

`schema` and `gateway_settings` list every setting. `read` turns a YAML
file into instances of these classes. `layers` folds the file, the environment and the flags, and finds the agents.
`setting` knows single settings by their names, and `change_settings` writes them to the file. `agent_config` has
`Config`: the settings of one agent, with the keys of providers and the paths of its files.
"""

from kept.config.agent_config import KEY_VARIABLES, Config, ProviderKeys
from kept.config.gateway_settings import HttpSettings, ResponderSettings
from kept.config.layers import ConfigFile, LoadedConfig, load_config
from kept.config.schema import (
    AgentSettings,
    BatchSettings,
    CacheSettings,
    ChunkingSettings,
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
