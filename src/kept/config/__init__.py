"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

The only package that reads the environment.
"""

from kept.config.keys import KEY_VARIABLES, ProviderKeys
from kept.config.layers import Layer, LoadedConfig, load_config
from kept.config.schema import (
    AgentConfig,
    Cache,
    Chunking,
    Config,
    Hybrid,
    Local,
    MemorySearch,
    Query,
    Remote,
    RemoteBatch,
    Rerank,
    Reset,
    ResetOverride,
    Sync,
)

__all__ = [
    "KEY_VARIABLES",
    "AgentConfig",
    "Cache",
    "Chunking",
    "Config",
    "Hybrid",
    "Layer",
    "LoadedConfig",
    "Local",
    "MemorySearch",
    "ProviderKeys",
    "Query",
    "Remote",
    "RemoteBatch",
    "Rerank",
    "Reset",
    "ResetOverride",
    "Sync",
    "load_config",
]
