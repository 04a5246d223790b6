"""Everyday questions on two small memories: the notes of one person and those of a software team.

`person` and `team` are sets in the format of `kept bench`. Each query also has a `half`: tuning may look at `tune`
only, and `held` shows whether the result carries over. `halves` reads both.
"""
