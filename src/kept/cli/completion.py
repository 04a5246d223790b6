"""kept completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kept.cli.output import echo, json_option, print_json
from kept.cli.root import COMPLETE_VARIABLE


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the completion script for SHELL: commands, options, notes, tags, sessions, agents and settings.

    For bash, add this to ~/.bashrc: eval "$(kept completion bash)". For zsh, the same with zsh to ~/.zshrc. For fish:
    kept completion fish > ~/.config/fish/completions/kept.fish
    """
    from kept.cli.root import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}.")
    script = kind(cli, {}, "kept", COMPLETE_VARIABLE).source()
    if shell == "bash":
        # Values are escaped for the shell, and neither split nor expanded again.
        script = script.replace("read type value", "read -r type value").replace("+=($value)", '+=("$value")')
    print_json({"shell": shell, "script": script}) if as_json else echo(script)
