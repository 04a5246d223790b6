"""kept providers, kept providers test NAME"""

from __future__ import annotations

import time

import click

from kept.app import ProviderInfo, list_providers, open_embedder
from kept.cli.output import echo, json_option, print_json, printable, style
from kept.cli.root import Globals
from kept.errors import UsageError
from kept.tools.record_json import to_json
from kept.wording import plural

SENTENCE = "The staging database moved to port 5433."


@click.group("providers", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the embedding providers, and how to enable them."""
    if ctx.invoked_subcommand:
        return
    options: Globals = ctx.obj
    providers = list_providers(options.load().config)
    if as_json:
        print_json({"providers": to_json(providers)})
    else:
        show_providers(providers)


@command.command("test")
@click.argument("name", required=False)
@json_option
@click.pass_obj
def test(options: Globals, name: str | None, as_json: bool) -> None:
    """Embed one sentence, and show how long it takes.

    NAME is the provider (default: the one in use).
    """
    config = options.load().config
    embedder = open_embedder(config, name or config.memory_search.provider)
    if embedder is None:
        raise UsageError("The provider 'none' embeds nothing.", hint="Name another: 'kept providers' lists them.")
    started = time.perf_counter()
    matrix = embedder.embed([SENTENCE], role="query")
    took_ms = (time.perf_counter() - started) * 1000
    identity = embedder.identity
    if as_json:
        print_json(
            {"provider": identity.provider, "model": identity.model, "dims": matrix.dims, "tookMs": round(took_ms, 3)}
        )
    else:
        echo(f"{identity.provider}, {identity.model}: {plural(matrix.dims, 'dimension')} in {took_ms:.0f} ms.")


def show_providers(providers: list[ProviderInfo]) -> None:
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
