"""Switching to another model: plan the settings, rebuild the index, change the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kept.cli.output import echo, progress_bar, style, warn
from kept.cli.root import Globals
from kept.config import Config
from kept.embedding.local_model import require_packages
from kept.embedding.model_catalogue import NEURAL, get_model, is_pulled, model_folder
from kept.errors import UsageError, WorkspaceMissing
from kept.remote_errors import EmbeddingFailed
from kept.tools.record_json import to_json
from kept.values import frozen
from kept.wording import plural

if TYPE_CHECKING:
    from kept.config.edit import SettingChange
    from kept.reports import SyncReport

DEFAULT = "default"
_PROVIDER, _MODEL = "memory_search.provider", "memory_search.model"
_MODEL_PATH = "memory_search.local.model_path"
RERANKER_PATH = "memory_search.query.rerank.model_path"


@frozen
class SwitchPlan:
    """The settings that make a model the one in use. A value of None removes the setting."""

    name: str
    is_embedder: bool
    settings: dict[str, str | None]

    def overrides(self) -> dict[str, Any]:
        """Return the settings as they will be, for a run before they are written."""
        defaults = {_PROVIDER: "auto"}
        return {name: value if value is not None else defaults.get(name) for name, value in self.settings.items()}


def plan_switch(config: Config, name: str) -> SwitchPlan:
    """Return what to change. Raise an error if the model cannot be used yet: then nothing changes."""
    search = config.memory_search
    own_path = {_MODEL_PATH: None} if search.local.model_path else {}
    if name == DEFAULT:
        is_remote = search.provider != "auto"
        return SwitchPlan(name, True, {_MODEL: None, **own_path, **({_PROVIDER: None} if is_remote else {})})
    model = get_model(name)
    if not model.is_built_in and not is_pulled(config.models_folder, model):
        raise UsageError(f"The model {name} is not on this machine.", hint=f"Download it: kept models pull {name}")
    if not model.is_built_in:
        require_packages(*NEURAL, extra="neural")
    if model.kind == "reranker":
        return SwitchPlan(name, False, {RERANKER_PATH: model_folder(config.models_folder, model)})
    provider = {} if search.provider in ("auto", "local") else {_PROVIDER: "local"}
    return SwitchPlan(name, True, {**provider, _MODEL: name, **own_path})


def rebuild_index(config: Config) -> SyncReport | None:
    """Embed everything with the new model. Others search with the old one until all is done."""
    from kept.app import open_index_service

    try:
        service = open_index_service(config)
    except WorkspaceMissing:
        return None  # nothing to embed yet
    try:
        with progress_bar("Embedding") as progress:
            report = service.sync(progress=progress)
    finally:
        service.close()
    if report.pending:
        raise EmbeddingFailed(report.failures[0], hint="What is embedded so far is kept. Try again.")
    return report


def change_settings(options: Globals, plan: SwitchPlan) -> list[SettingChange]:
    from kept.config.edit import change_setting

    return [
        change_setting(options.load(), name, None if value is None else [value], agent=options.agent)
        for name, value in plan.settings.items()
    ]


def switch_json(plan: SwitchPlan, changes: list[SettingChange], report: SyncReport | None) -> dict[str, Any]:
    settings = [
        {"setting": change.name, "value": plan.settings[change.name], "changed": change.is_changed, "path": change.path}
        for change in changes
    ]
    return {
        "model": plan.name,
        "settings": settings,
        "index": to_json(report) if report else None,
    }


def show_switch(options: Globals, plan: SwitchPlan, changes: list[SettingChange], report: SyncReport | None) -> None:
    config = options.load().config
    for failure in report.failures if report else ():
        warn(failure)
    search = config.memory_search
    current = search.query.rerank.model_path if not plan.is_embedder else search.model
    expected = plan.settings.get(RERANKER_PATH if not plan.is_embedder else _MODEL)
    if current != expected:
        warn("The settings were changed, but a later layer overrides them: see 'kept config explain model'.")
    model = "Kept chooses the model" if plan.name == DEFAULT else f"Kept uses {style(plan.name, bold=True)}"
    work = f", {plural(report.embedded, 'text')} embedded" if report and report.embedded else ""
    echo(f"{model} now ({style(changes[0].path, fg='cyan')}{work}).")
