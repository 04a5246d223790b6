"""Connecting other programs to the memory: their settings are changed as little as can be, and back again.

clients     which programs there are, where their settings lie and what they look like
command     how a program starts `kept mcp`
json_tree   reading JSON with the place of everything in it
json_text, toml_text
            changing one entry of a file and no other byte
plugin      what Claude Code gets besides: hooks
change      what would change, as a diff; doing it, with a copy of what was; undoing it
recent      what a new session of an agent is told of the earlier ones
"""
