"""kept config show | explain | get | set | unset | edit | path | agents"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from kept.cli.agents import command as agents_command
from kept.cli.command_arguments import TextCommand
from kept.cli.output import echo, json_option, print_json, style, warn
from kept.cli.root import Globals
from kept.config import LoadedConfig
from kept.config.read import nearest, snake
from kept.config.setting import SettingRow, list_settings, plain_value, value_text
from kept.errors import ConfigError, UsageError


@click.group("config")
def command() -> None:
    """Show and change the settings."""


command.add_command(agents_command)


@command.command("show")
@json_option
@click.pass_obj
def show(options: Globals, as_json: bool) -> None:
    """Print every setting as YAML for config.yaml."""
    loaded = options.load()
    tree: dict[str, Any] = {"agents": {"defaults": {}}}
    for row in list_settings(loaded):
        keys = row.name.split(".") if row.name.startswith("gateway.") else ["agents", "defaults", *row.name.split(".")]
        into = tree
        for key in keys[:-1]:
            into = into.setdefault(key, {})
        into[keys[-1]] = plain_value(row.value)
    if as_json:
        print_json(tree)
        return
    import yaml

    echo(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), nl=False)


@command.command("explain")
@click.argument("key", required=False, default="")
@json_option
@click.pass_obj
def explain(options: Globals, key: str, as_json: bool) -> None:
    """List every setting with its value and its origin.

    KEY limits the list to a group or a name, such as 'query' or 'memory_search.query'.
    """
    rows = _matching(options.load(), key)
    if as_json:
        print_json({"settings": [_row_json(row) for row in rows]})
    else:
        _show_table(rows)


@command.command("get")
@click.argument("key")
@json_option
@click.pass_obj
def get(options: Globals, key: str, as_json: bool) -> None:
    """Print the value of a setting.

    KEY is its name, or the end of it, such as 'query.max_results'. For a group, such as 'query', all of its settings
    are listed.
    """
    rows = _matching(options.load(), key)
    if as_json:
        print_json({"settings": [_row_json(row) for row in rows]})
    elif len(rows) == 1:
        value = rows[0].value
        values = value if isinstance(value, tuple) else (value,)
        echo("\n".join("null" if item is None else value_text(item) for item in values))
    else:
        _show_table(rows)


@command.command("set", cls=TextCommand)
@click.argument("key")
@click.argument("values", metavar="VALUE...", nargs=-1, required=True)
@json_option
@click.pass_obj
def set_value(options: Globals, key: str, values: tuple[str, ...], as_json: bool) -> None:
    """Change a setting in config.yaml. Comments and formatting stay.

    KEY is its full name, such as memory_search.query.max_results. VALUE... is one value, or several for a list; 'null'
    is no value. With --agent it is set for that agent only, otherwise for all, unless the agent in use has a value of
    its own.
    """
    from kept.config.edit import change_setting

    loaded = options.load()
    change = change_setting(loaded, key, values, agent=_named_agent(options))
    shown = "(set)" if change.is_secret else plain_value(change.value)
    if as_json:
        print_json(_change_json(change, shown))
        return
    state = "is now" if change.is_changed else "is already"
    echo(f"{change.name} {state} {value_text(shown)} in {style(change.path, fg='cyan')} ({change.where}).")
    _warn_if_overridden(options, change.name)


@command.command("unset")
@click.argument("key")
@json_option
@click.pass_obj
def unset(options: Globals, key: str, as_json: bool) -> None:
    """Remove a setting from config.yaml, so that its default applies.

    KEY is its full name. With --agent, only the value of that agent is removed.
    """
    from kept.config.edit import change_setting

    change = change_setting(options.load(), key, None, agent=_named_agent(options))
    row = next((row for row in list_settings(options.load()) if row.name == change.name), None)
    if as_json:
        print_json(_change_json(change, plain_value(row.value) if row else None))
        return
    state = "was removed from" if change.is_changed else "is not in"
    now = f" Its value is {value_text(row.value)} ({row.origin})." if row else ""
    echo(f"{change.name} {state} {style(change.path, fg='cyan')} ({change.where}).{now}")


@command.command("edit")
@click.pass_obj
def edit(options: Globals) -> None:
    """Open config.yaml in your editor ($VISUAL or $EDITOR).

    A file that is not valid is not saved: you can go on editing, or leave it as it was.
    """
    file, agent = _file_and_agent(options)
    if _edit_file(file, agent):
        options.load()  # prints notices about values
        echo(f"Saved {style(file, fg='cyan')}.")
    else:
        echo("Nothing was changed.")


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


# changing


def _edit_file(path: str, agent: str) -> bool:
    """Let the user edit the settings file. Return whether it changed. Raise ConfigError if the text stays broken."""
    import tempfile

    from kept.config.edit import HEADER, read_text, write_text
    from kept.durable import make_private_folder

    before = read_text(path)
    folder = os.path.dirname(os.path.realpath(path))
    make_private_folder(folder)
    # Beside the file and private: it may contain keys. Kept if it cannot be saved, so that no work is lost.
    handle, draft = tempfile.mkstemp(prefix="config-draft-", suffix=".yaml", dir=folder)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(before or HEADER)
    try:
        text = _edit_until_valid(path, draft, agent)
        is_changed = text not in (before, before or HEADER)
        if is_changed:
            write_text(path, text, expected=before)
    except ConfigError as exc:
        raise ConfigError(exc.message, hint=f"{path} is as it was. Your text is in {draft}.") from None
    except BaseException:
        if read_text(draft) == (before or HEADER):
            os.unlink(draft)
        raise
    os.unlink(draft)
    return is_changed


def _edit_until_valid(path: str, draft: str, agent: str) -> str:
    from kept.config.edit import check_text, read_text

    while True:
        try:
            click.edit(filename=draft)
        except click.ClickException as exc:
            problem = f"The editor failed: {exc.format_message()}"
            raise UsageError(problem, hint="Set VISUAL or EDITOR to another.") from exc
        try:
            text = read_text(draft)
            check_text(path, text, agent)
            return text
        except ConfigError as exc:
            if not sys.stdin.isatty():
                raise
            warn(f"{exc.message} {exc.hint}")
            if not click.confirm("Edit it again?", default=True, err=True):
                raise


def _named_agent(options: Globals) -> str | None:
    return options.agent or os.environ.get("KEPT_AGENT") or None


def _file_and_agent(options: Globals) -> tuple[str, str]:
    """Return the settings file and the agent, even if the settings are broken: editing is how to repair them."""
    from kept.config.layers import MAIN_AGENT, find_user_file

    agent = _named_agent(options) or MAIN_AGENT
    return find_user_file(options.home, options.config_file).path, agent


def _warn_if_overridden(options: Globals, name: str) -> None:
    row = next((row for row in list_settings(options.load()) if row.name == name), None)
    if row and row.origin != "default" and not row.origin.startswith("user file"):
        warn(f"It has no effect now: {value_text(row.value)} comes from a later layer ({row.origin}).")


def _change_json(change: Any, value: Any) -> dict[str, Any]:
    return {
        "setting": change.name,
        "value": value,
        "changed": change.is_changed,
        "path": change.path,
        "in": change.where,
    }


# showing


def _matching(loaded: LoadedConfig, key: str) -> list[SettingRow]:
    """Return the settings that a key names, by whole parts of the name if any match so, else by their beginnings."""
    rows = list_settings(loaded)
    parts = snake(key).removeprefix("agents.defaults").strip(".").split(".")
    chosen = [row for row in rows if _matches(row.name, parts, whole=True)] or [
        row for row in rows if _matches(row.name, parts, whole=False)
    ]
    if not chosen:
        names = _prefixes(rows)
        wanted = ".".join(parts)
        hint = nearest(wanted, names if "." in wanted else sorted({part for name in names for part in name.split(".")}))
        raise UsageError(f"No setting is called '{key}'.", hint=hint)
    return chosen


def _matches(name: str, parts: list[str], *, whole: bool) -> bool:
    """Return whether consecutive parts of a name are these, the last one perhaps only by its beginning."""
    path = name.split(".")
    starts = range(len(path) - len(parts) + 1)
    return any(
        path[at : at + len(parts) - 1] == parts[:-1]
        and (path[at + len(parts) - 1] == parts[-1] or (not whole and path[at + len(parts) - 1].startswith(parts[-1])))
        for at in starts
    )


def _prefixes(rows: list[SettingRow]) -> list[str]:
    names = (row.name.split(".") for row in rows)
    return sorted({".".join(keys[:depth]) for keys in names for depth in range(1, len(keys) + 1)})


def _show_table(rows: list[SettingRow]) -> None:
    from kept.cli.terminal_layout import show_table

    show_table(("Setting", "Value", "From"), [(row.name, value_text(row.value), row.origin) for row in rows])


def _row_json(row: SettingRow) -> dict[str, Any]:
    return {"setting": row.name, "value": plain_value(row.value), "from": row.origin}
