"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

`read_file` reads a YAML file, `read` checks it against the classes of `schema`, and `layers` folds the files, the
environment and the flags. `setting` knows single settings by their names, and `change_settings` writes them to the
file. `keys` are the keys of providers, `secrets` lists all that must stay out of messages, `agent_paths` names the
files of an agent, and `agents` finds the agents there are. `search_settings` and `gateway_settings` are parts of
`schema`, with the fields of `setting_fields`; `old_names` knows those of OpenClaw, and `removed` those that Kept no
longer has.
"""

from kept.config.gateway_settings import HttpSettings, ResponderSettings
from kept.config.keys import KEY_VARIABLES, ProviderKeys
from kept.config.layers import ConfigFile, Layer, LoadedConfig, load_config
from kept.config.schema import AgentSettings, Config, McpServerSettings, ResetOverrideSettings, ResetSettings
from kept.config.search_settings import (
    BatchSettings,
    CacheSettings,
    ChunkingSettings,
    HybridSettings,
    LocalModelSettings,
    MemorySearchSettings,
    QuerySettings,
    RemoteSettings,
    RerankSettings,
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
