"""The question whether the only person who may write to an agent is its owner."""

from __future__ import annotations

import os
import sys

import click

from kept.base.visibility import PRIVATE_FOLDER
from kept.cli.output import echo
from kept.config import Config, LoadedConfig

_OWNER = "session.owner"


def ask_for_owner(loaded: LoadedConfig) -> bool:
    """Ask whether the only person that the gateway lets in is the owner, once: the answer is written to the settings.
    Return whether they have changed."""
    config = loaded.config
    if config.agent.session.owner != "auto" or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    name = find_only_person(config)
    if name is None:
        return False
    from kept.config.change_settings import change_setting

    echo(
        f"Only {name} may write to this agent. The owner also recalls what is said in 'kept chat' and imported from",
        err=True,
    )
    echo("programs on this machine, and writes the shared notes.", err=True)
    is_owner = click.confirm(f"Is {name} the owner?", default=False, err=True)
    change = change_setting(loaded, _OWNER, [name if is_owner else "none"], agent=config.agent_id)
    echo(f"{_OWNER} is now {change.value}, in {change.path}.", err=True)
    return True


def find_only_person(config: Config) -> str | None:
    """Return the name of the only person that the gateway lets in, or None if anything names another."""
    from kept.server.tokens import token_book
    from kept.sessions.people import HOME_CHANNELS, SHARED_CHANNEL, People
    from kept.sessions.store import SessionStore
    from kept.storage.open import open_home

    keys: list[str] = []
    if os.path.isdir(config.paths.sessions):
        with SessionStore(config) as sessions:
            others = (record for record in sessions.recent() if record.channel not in {*HOME_CHANNELS, SHARED_CHANNEL})
            keys = [record.key for record in others]
    people = [token.person for token in token_book(open_home(config)).read().tokens if token.person is not None]
    return People(config).find_only([*keys, *people], _private_folders(config.workspace))


def _private_folders(workspace: str) -> list[str]:
    try:
        with os.scandir(os.path.join(workspace, PRIVATE_FOLDER)) as entries:
            return [entry.name.lower() for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
