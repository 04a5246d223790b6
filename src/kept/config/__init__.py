"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

The only package that reads the environment.
"""

from kept.config.layers import Layer, LoadedConfig, load_config
from kept.config.schema import (
    AgentConfig,
    Cache,
    Chunking,
    Config,
    Hybrid,
    MemorySearch,
    Query,
    Reset,
    ResetOverride,
    Sync,
)

__all__ = [
    "AgentConfig",
    "Cache",
    "Chunking",
    "Config",
    "Hybrid",
    "Layer",
    "LoadedConfig",
    "MemorySearch",
    "Query",
    "Reset",
    "ResetOverride",
    "Sync",
    "load_config",
]
