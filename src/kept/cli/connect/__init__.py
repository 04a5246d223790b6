"""Connecting other programs to the memory. Their settings are changed as little as possible, and can be changed back.

clients      the programs, where their settings are and what an entry looks like
connection   plan the changes to a client's files, apply them, undo them
settings_editor
             change one entry of a file and no other byte
claude_code_plugin  the plugin for Claude Code, with its hooks
recent       the context that a hook adds to a new session
"""
