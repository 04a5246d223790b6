"""kept config show | explain | path"""

from __future__ import annotations

import re
from dataclasses import asdict, is_dataclass
from typing import Any

import click

from kept.cli.output import console, echo, json_option, print_json, style
from kept.cli.root import Globals, show_help_without_command
from kept.config import LoadedConfig
from kept.config.layers import settings_of
from kept.config.read import nearest, snake
from kept.errors import UsageError


@click.group("config", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show the settings and where they come from."""
    show_help_without_command(ctx)


@command.command("show")
@json_option
@click.pass_obj
def show(options: Globals, as_json: bool) -> None:
    """Print every setting as YAML for config.yaml."""
    loaded = options.load()
    tree: dict[str, Any] = {"agents": {"defaults": {}}}
    for name, value, _ in _settings(loaded):
        keys = name.split(".") if name.startswith("gateway.") else ["agents", "defaults", *name.split(".")]
        into = tree
        for key in keys[:-1]:
            into = into.setdefault(key, {})
        into[keys[-1]] = _plain(value)
    if as_json:
        print_json(tree)
        return
    import yaml

    echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)


@command.command("explain")
@click.argument("prefix", required=False, default="")
@json_option
@click.pass_obj
def explain(options: Globals, prefix: str, as_json: bool) -> None:
    """List every setting with its value and its origin.

    PREFIX limits the list: 'kept config explain memory_search.query'.
    """
    all_rows = _settings(options.load())
    start = snake(prefix).removeprefix("agents.defaults").removeprefix(".")
    rows = [row for row in all_rows if row[0].startswith(start)]
    if not rows:
        raise UsageError(f"No setting begins with '{prefix}'.", hint=nearest(start, _prefixes(all_rows)))
    if as_json:
        print_json([{"setting": name, "value": _plain(value), "from": origin} for name, value, origin in rows])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("Setting", "Value", "From", box=None, pad_edge=False, header_style="bold")
    for name, value, origin in rows:
        table.add_row(Text(name), Text(_shown(value)), Text(origin, style="dim" if origin == "default" else "green"))
    console().print(table)


@command.command("path")
@json_option
@click.pass_obj
def path(options: Globals, as_json: bool) -> None:
    """List the files that settings are read from."""
    loaded = options.load()
    files = (loaded.user_file, loaded.project_file)
    if as_json:
        print_json({file.kind: {"path": file.path, "exists": file.exists} for file in files})
        return
    for file in files:
        echo(f"{file.kind:<8} {file.path}  {style('found' if file.exists else 'does not exist', dim=True)}")


def _settings(loaded: LoadedConfig) -> list[tuple[str, Any, str]]:
    rows: list[tuple[str, Any, str]] = []
    parts = ((loaded.config.agent, ""), (loaded.config.gateway, "gateway"))
    for part, at in parts:
        for name, value, is_secret in settings_of(part, at):
            shown = "(set)" if is_secret and value else _without_secrets(value) if name.endswith("_url") else value
            rows.append((name, shown, _origin(loaded.origins, name)))
    return rows


def _origin(origins: dict[str, str], name: str) -> str:
    below = (origin for key, origin in origins.items() if key == name or key.startswith(f"{name}."))
    return next(below, "default")


def _prefixes(rows: list[tuple[str, Any, str]]) -> list[str]:
    names = (name.split(".") for name, _, _ in rows)
    return sorted({".".join(keys[:depth]) for keys in names for depth in range(1, len(keys) + 1)})


def _without_secrets(url: Any) -> Any:
    """Remove the password and the query from a URL. Either may be a key."""
    return re.sub(r"\?.*", "?(set)", re.sub(r"//[^/@]*@", "//(set)@", url)) if url else url


def _plain(value: Any) -> Any:
    """Return the value as YAML and JSON can write it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: item for name, item in asdict(value).items() if item is not None}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "(none)"
    return "(none)" if value is None or value == {} else str(_plain(value))
