"""Helpers that several tests share: workspaces, processes, loopback servers, small models and hypothesis strategies.

Import them by their full name, as in `from tests.support.workspaces import open_memory`. Fixtures are in conftest.py.
"""
