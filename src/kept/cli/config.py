"""kept config explain | get | set | unset | path | agents: settings, and the agents of a home"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from kept.agent.tools.record_json import to_json
from kept.cli.options import kept_command
from kept.cli.output import cyan, dim, warn
from kept.cli.root import Globals
from kept.cli.terminal_layout import table_text
from kept.config import LoadedConfig
from kept.config.change_settings import SettingChange, change_setting
from kept.config.read import nearest, snake
from kept.config.setting import SettingRow, list_settings, plain_value, value_text
from kept.errors import UsageError


@click.group("config")
def command() -> None:
    """Show and change the settings.

    \b
    kept config set memory_search.query.max_results 8
    kept config explain query
    """


@kept_command("explain", command)
@click.argument("key", required=False, default="")
def explain(options: Globals, key: str) -> None:
    """List every setting with its value and its origin.

    KEY limits the list to a group or a name, such as 'query' or 'memory_search.query'.
    """
    rows = _matching(options.load(), key)
    _report(options, rows, _table(rows))


@kept_command("get", command)
@click.argument("key")
def get(options: Globals, key: str) -> None:
    """Print the value of a setting.

    KEY is its name, or the end of it, such as 'query.max_results'. For a group, such as 'query', all of its settings
    are listed.
    """
    rows = _matching(options.load(), key)
    value = rows[0].value
    values = value if isinstance(value, tuple) else (value,)
    text = "\n".join("null" if item is None else value_text(item) for item in values)
    _report(options, rows, text if len(rows) == 1 else _table(rows))


@kept_command("set", command)
@click.argument("key")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
def set_value(options: Globals, key: str, values: tuple[str, ...]) -> None:
    """Change a setting in config.yaml. Comments and formatting stay.

    KEY is its full name, such as memory_search.query.max_results. VALUE... is one value, or several for a list; 'null'
    is no value. With --agent it is set for that agent only, otherwise for all, unless the agent in use has a value of
    its own.
    """
    loaded = options.load()
    change = change_setting(loaded, key, values, agent=_named_agent(options))
    shown = "(set)" if change.is_secret else plain_value(change.value)
    state = "is now" if change.is_changed else "is already"
    text = f"{change.name} {state} {value_text(shown)} in {cyan(change.path)} ({change.where})."
    options.report(change_json(change, shown), text)
    row = _find_row(options, change.name)
    if row and row.origin != "default" and not row.origin.startswith("user file") and not options.as_json:
        warn(f"It has no effect now: {value_text(row.value)} comes from a later layer ({row.origin}).")


@kept_command("unset", command)
@click.argument("key")
def unset(options: Globals, key: str) -> None:
    """Remove a setting from config.yaml, so that its default applies.

    KEY is its full name. With --agent, only the value of that agent is removed.
    """
    change = change_setting(options.load(), key, None, agent=_named_agent(options))
    row = _find_row(options, change.name)
    state = "was removed from" if change.is_changed else "is not in"
    now = f" Its value is {value_text(row.value)} ({row.origin})." if row else ""
    text = f"{change.name} {state} {cyan(change.path)} ({change.where}).{now}"
    options.report(change_json(change, plain_value(row.value) if row else None), text)


@kept_command("path", command)
def path(options: Globals) -> None:
    """Print the path of the file that settings are read from."""
    file = options.load().user_file
    text = file.path if file.exists else f"{file.path}  {dim('does not exist')}"
    options.report(to_json(file), text)


# changing


def _named_agent(options: Globals) -> str | None:
    return options.agent or os.environ.get("KEPT_AGENT") or None


def _find_row(options: Globals, name: str) -> SettingRow | None:
    return next((row for row in list_settings(options.load()) if row.name == name), None)


def change_json(change: SettingChange, value: Any) -> dict[str, Any]:
    return {
        "setting": change.name,
        "value": value,
        "changed": change.is_changed,
        "path": change.path,
        "in": change.where,
    }


# showing


def _matching(loaded: LoadedConfig, key: str) -> list[SettingRow]:
    """Return the settings that a key names: consecutive parts of their names."""
    rows = list_settings(loaded)
    wanted = snake(key).removeprefix("agents.defaults").strip(".")
    chosen = [row for row in rows if f".{wanted}." in f".{row.name}."] if wanted else rows
    if not chosen:
        paths = [row.name.split(".") for row in rows]
        names = {".".join(path[at:end]) for path in paths for end in range(len(path) + 1) for at in (0, end - 1)}
        raise UsageError(f"No setting is called '{key}'.", hint=nearest(wanted, sorted(names)))
    return chosen


def _report(options: Globals, rows: list[SettingRow], text: str) -> None:
    shapes = [{"setting": row.name, "value": plain_value(row.value), "from": row.origin} for row in rows]
    options.report({"settings": shapes}, text)


def _table(rows: list[SettingRow]) -> str:
    return table_text(("Setting", "Value", "From"), [(row.name, value_text(row.value), row.origin) for row in rows])


# agents


@kept_command("agents", command)
def agents(options: Globals) -> None:
    """List the agents: where their notes are, with whom they share these, and which model answers.

    'kept --agent NAME init' adds one.
    """
    from kept.config.layers import is_same_folder, settings_by_agent

    configs = {name: loaded.config for name, loaded in settings_by_agent(replace(options, agent="main").load()).items()}
    shapes, rows = [], []
    for name, config in configs.items():
        others = [other for other in configs if other != name]
        shared = [other for other in others if is_same_folder(configs[other].workspace, config.workspace)]
        folder, model = config.workspace, config.agent.model.name
        shapes.append({"name": name, "workspaceDir": folder, "sharedWith": shared, "model": model})
        rows.append((name, folder, ", ".join(shared), model or ""))
    options.report({"agents": shapes}, table_text(("Agent", "Notes in", "Shared with", "Model"), rows))
