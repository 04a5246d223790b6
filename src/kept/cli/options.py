"""How commands are declared: names, options with a value, switches, and the options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def kept_command(name: str, group: click.Group | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command. Its function gets the global options first."""
    make = group.command if group else click.command
    return lambda run: make(name)(click.pass_obj(run))


def option(flag: str, metavar: str, text: str, *names: str, **more: Any) -> Decorator:
    """Return an option with a value. ``names`` are other spellings, and its name for the function."""
    return click.option(flag, *names, metavar=metavar, help=text, **more)


def switch(flag: str, text: str, *names: str) -> Decorator:
    return click.option(flag, *names, is_flag=True, help=text)


def alternative(flag: str, name: str, text: str) -> Decorator:
    """Return an option that sets ``name`` to the flag's own word, as one of several that exclude each other."""
    return click.option(flag, name, flag_value=flag.removeprefix("--"), help=text)


session_option = option("--session", "ID", "Only changes from this session.")
person_option = option(
    "--as",
    "PERSON",
    "As this person sees it: a name of session.identity_links, or an account such as telegram:5054.",
    "person",
)
send_option = click.option(
    "--send",
    type=click.Choice(["recent", "memory", "nothing"]),
    help="Notes for the model when a session begins: MEMORY.md and those of the project; recent: daily notes and the "
    "last conversation in the folder too. Default: memory in a vault, else recent.",
)


def max_results_option(default: int | None, most: int, *, note: str = "") -> Decorator:
    """Return the option for the number of results, which every command calls the same."""
    text = f"Maximum number of results{note}."
    kind = click.IntRange(1, most)
    return option("-n", "N", text, "--max-results", "--limit", "max_results", type=kind, default=default)


def note_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose notes and conversations, for a search and for a list."""
    for add in (
        option("--tag", "TAG", "Only notes with this tag; repeat it for several.", "tags", multiple=True),
        option("--until", "WHEN", "Only up to this time, that day included."),
        option("--since", "WHEN", "Only from this time on: 2026-03-01, 'last Thursday', 7d."),
        option("--path", "GLOB", "Only these notes: a path, a folder, or a pattern such as 'memory/2026-*'."),
    ):
        command = add(command)
    return command
