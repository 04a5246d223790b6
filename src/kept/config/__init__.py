"""Settings: layers of YAML, environment and flags, folded into one frozen Config.

`schema` and `gateway_settings` list every setting. `read` turns a YAML
file into instances of these classes. `layers` folds the file, the environment and the flags, and finds the agents.
`setting` knows single settings by their names, and `change_settings` writes them to the file. `agent_config` has
`Config`: the settings of one agent, with the keys of providers and the paths of its files.
"""

from kept.config.agent_config import Config
from kept.config.layers import LoadedConfig, load_config

__all__ = ["Config", "LoadedConfig", "load_config"]
