"""kept completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kept.cli.output import echo


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    For bash, add this to ~/.bashrc: eval "$(kept completion bash)"
    """
    from kept.cli.root import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    echo(kind(cli, {}, "kept", "_KEPT_COMPLETE").source())
