"""Switching to another model: plan the settings, embed everything ahead, change the settings, rebuild the index."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kept.cli.output import bars, echo, style, warn
from kept.cli.root import Globals
from kept.config import Config
from kept.embedding.model_catalogue import get_model, is_pulled, model_folder, require_packages_of
from kept.errors import UsageError, WorkspaceMissing
from kept.tools.record_json import to_json
from kept.values import frozen
from kept.wording import plural

if TYPE_CHECKING:
    from kept.config.edit import SettingChange
    from kept.indexing.embed_ahead import EmbedProgress
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
    require_packages_of(model)
    if model.kind == "reranker":
        return SwitchPlan(name, False, {RERANKER_PATH: model_folder(config.models_folder, model)})
    provider = {} if search.provider in ("auto", "local") else {_PROVIDER: "local"}
    return SwitchPlan(name, True, {**provider, _MODEL: name, **own_path})


def embed_first(config: Config) -> int:
    """Embed everything with the new model, while others search with the old one."""
    from kept.app import open_index_service
    from kept.indexing.embed_ahead import embed_ahead

    try:
        service = open_index_service(config)
    except WorkspaceMissing:
        return 0  # nothing to embed yet
    try:
        with _embedding_bar() as report:
            return embed_ahead(service, report)
    finally:
        service.close()


@contextmanager
def _embedding_bar() -> Iterator[Callable[[EmbedProgress], None]]:
    """Show a bar on a terminal; elsewhere print the estimate once."""
    if not sys.stderr.isatty():
        printed: list[bool] = []

        def report_once(progress: EmbedProgress) -> None:
            if not printed and progress.left_s and progress.left_s > 10:
                printed.append(True)
                texts = plural(progress.total_texts, "text")
                echo(f"Embedding {texts}: about {_duration(progress.left_s)} left.", err=True)

        yield report_once
        return
    from rich.progress import BarColumn, MofNCompleteColumn

    bar = bars(BarColumn(), MofNCompleteColumn(), last="left")
    task = bar.add_task("Embedding", total=None, left="")

    def report(progress: EmbedProgress) -> None:
        left = f"about {_duration(progress.left_s)} left" if progress.left_s else ""
        bar.update(task, completed=progress.texts, total=progress.total_texts, left=left)

    with bar:
        yield report


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def change_settings(options: Globals, plan: SwitchPlan) -> list[SettingChange]:
    from kept.config.edit import change_setting

    return [
        change_setting(options.load(), name, None if value is None else [value], agent=options.agent)
        for name, value in plan.settings.items()
    ]


def switch_index(options: Globals) -> SyncReport | None:
    from kept.app import open_index_service

    try:
        service = open_index_service(options.load().config)
    except WorkspaceMissing:
        return None
    try:
        return service.sync()
    finally:
        service.close()


def switch_json(
    plan: SwitchPlan, changes: list[SettingChange], embedded: int, report: SyncReport | None
) -> dict[str, Any]:
    settings = [
        {"setting": change.name, "value": plan.settings[change.name], "changed": change.is_changed, "path": change.path}
        for change in changes
    ]
    return {
        "model": plan.name,
        "settings": settings,
        "embedded": embedded,
        "index": to_json(report) if report else None,
    }


def show_switch(
    options: Globals, plan: SwitchPlan, changes: list[SettingChange], embedded: int, report: SyncReport | None
) -> None:
    config = options.load().config
    for failure in report.failures if report else ():
        warn(failure)
    search = config.memory_search
    current = search.query.rerank.model_path if not plan.is_embedder else search.model
    expected = plan.settings.get(RERANKER_PATH if not plan.is_embedder else _MODEL)
    if current != expected:
        warn("The settings were changed, but a later layer overrides them: see 'kept config explain model'.")
    model = "Kept chooses the model" if plan.name == DEFAULT else f"Kept uses {style(plan.name, bold=True)}"
    work = f", {plural(embedded, 'text')} embedded" if embedded else ""
    echo(f"{model} now ({style(changes[0].path, fg='cyan')}{work}).")
