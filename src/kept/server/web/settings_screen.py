"""Settings: every setting with its value, origin and meaning. A change is shown as a diff before it is made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from starlette.responses import Response

import kept
from kept.base.redact import REDACTED, Redactor
from kept.base.values import frozen
from kept.config import LoadedConfig, change_settings, load_config
from kept.config.agent_config import secrets_of
from kept.config.layers import FLAGS
from kept.config.setting import SettingRow, list_settings, value_text
from kept.errors import KeptError, UsageError
from kept.notes.history.line_changes import diff_versions
from kept.server.web.visit import Page, Screen, Visit

_OTHER = "Other"


@frozen
class SettingView:
    row: SettingRow
    help: SettingHelp | None
    text: str
    """Value for people."""

    @property
    def section(self) -> str:
        return self.help.section if self.help else _OTHER

    @property
    def layer(self) -> str:
        """Return the layer that the value comes from, without the path of its file."""
        return self.row.origin.partition(" file ")[0] + (" file" if " file " in self.row.origin else "")

    def mentions(self, words: Sequence[str]) -> bool:
        text = f"{self.row.name} {self.help.meaning if self.help else ''} {self.section}".lower()
        return all(word in text for word in words)


def show_settings(visit: Visit) -> Response:
    loaded = reload_settings(visit.site.loaded)
    find = visit.query.get("find", "").strip()
    views = [view for view in view_settings(loaded) if view.mentions(find.lower().split())]
    sections = [(section, list(rows)) for section, rows in groupby(views, key=lambda view: view.section)]
    return visit.render(
        "settings.html",
        sections=sections,
        count=len(views),
        find=find,
        file=loaded.user_file,
        notices=loaded.config.notices,
    )


def show_setting(visit: Visit) -> Response:
    view = _find_view(reload_settings(visit.site.loaded), visit.path["name"])
    return visit.render("setting.html", view=view, diff=None, problem=None, value=None)


def _find_view(loaded: LoadedConfig, name: str) -> SettingView:
    for view in view_settings(loaded):
        if view.row.name == name:
            return view
    raise UsageError(f"No setting is called '{name[:100]}'.", hint="The page Settings lists all of them.")


def change_setting(visit: Visit) -> Response:
    """Show what a change does to the user's file. Once it is confirmed, make it."""
    loaded = reload_settings(visit.site.loaded)
    view, field = _find_view(loaded, visit.path["name"]), visit.form.get("value", "")
    is_removal, is_confirmed = visit.form.get("action") == "unset", visit.form.get("do") == "save"
    values = [line.strip() for line in field.splitlines() if line.strip()] or [""]
    shown: dict[str, Any] = {"view": view, "value": field, "is_removal": is_removal}
    try:
        wanted = None if is_removal else values
        change = change_settings.change_setting(loaded, view.row.name, wanted, agent=None, dry_run=not is_confirmed)
    except KeptError as exc:
        return visit.render("setting.html", status=400, **shown, diff=None, problem=exc)
    if not is_confirmed:
        diff = diff_versions(change.before.encode(), change.after.encode(), "config.yaml", "config.yaml")
        diff = Redactor(secrets_of(loaded.config))(diff)
        for secret in filter(None, values if view.row.is_secret else ()):  # however short it is
            diff = diff.replace(secret, REDACTED)
        return visit.render("setting.html", **shown, diff=diff, problem=None)
    state = "changed" if change.is_changed else "as it was"
    text = f"{change.name}: {state}. Programs that are running, this server too, use it after their next start."
    return visit.redirect(f"/settings?find={change.name}", notice=text)


def reload_settings(loaded: LoadedConfig) -> LoadedConfig:
    """Return the settings as the files have them now."""
    config = loaded.config
    return load_config(
        home=config.home,
        workspace=config.workspace if loaded.origins.get("workspace") == FLAGS else None,
        agent=config.agent_id,
        config_file=loaded.user_file.path if loaded.user_file.exists else None,
    )


def view_settings(loaded: LoadedConfig) -> list[SettingView]:
    """Return all settings in the order of the reference."""
    explained = load_setting_help()
    order = {name: at for at, name in enumerate(explained)}
    rows = sorted(list_settings(loaded), key=lambda row: order.get(row.name, len(order)))
    return [SettingView(row, explained.get(row.name), value_text(row.value)) for row in rows]


SCREEN = Screen(
    name="settings",
    label="Settings",
    home="/settings",
    pages=(
        Page("/settings", show_settings, "change settings"),
        Page("/settings/{name}", show_setting, "change settings"),
        Page("/settings/{name}/change", change_setting, "change settings", ("POST",)),
    ),
    key="e",
)


_IN_WHEEL = "settings.md"
_IN_REPOSITORY = Path(kept.__file__).parents[2] / "docs" / "reference" / "config.md"
"""The page in the repository that an editable install runs from."""
_ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \| (.*) \|$")
_HEADING = re.compile(r"^#{2,3} (.+)$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@frozen
class SettingHelp:
    section: str
    default: str
    meaning: str


@cache
def load_setting_help() -> dict[str, SettingHelp]:
    """Return the explanation of each setting by its name, in the order of the reference."""
    section, explained = "", {}
    packaged = files("kept.server.web").joinpath(_IN_WHEEL)
    page = packaged if packaged.is_file() else _IN_REPOSITORY
    for line in page.read_text(encoding="utf-8").splitlines() if page.is_file() else ():
        if heading := _HEADING.match(line):
            section = heading[1]
        elif row := _ROW.match(line):
            explained[row[1]] = SettingHelp(section, _plain(row[2]), _plain(row[3]))
    return explained


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text.replace("\\|", "|")).replace("`", "")
