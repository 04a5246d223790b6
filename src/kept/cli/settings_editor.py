"""Editing the settings file in the user's editor. The file itself changes only when the text is valid."""

from __future__ import annotations

import os
import sys
import tempfile

import click

from kept.cli.output import warn
from kept.durable import make_private_folder
from kept.errors import ConfigError, UsageError
from kept.settings_change import HEADER, check_text, read_text, write_text


def edit_settings(path: str, agent: str) -> bool:
    """Let the user edit the settings file. Return whether it changed. Raise ConfigError if the text stays broken."""
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
    while True:
        _run_editor(draft)
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


def _run_editor(draft: str) -> None:
    try:
        click.edit(filename=draft)
    except click.ClickException as exc:
        raise UsageError(f"The editor failed: {exc.format_message()}", hint="Set VISUAL or EDITOR to another.") from exc
