"""Connecting other programs to the memory. Their settings are changed as little as possible, and can be changed back.

`clients` knows the programs, where their settings are, what an entry looks like, and the plugin for Claude Code.
`connection` plans the changes to a client's files, applies them and undoes them. `settings_editor` changes one entry of
a file and no other byte.
"""
