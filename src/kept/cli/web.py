"""kept web"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kept.cli.output import echo, log_to_stderr
from kept.cli.root import Globals

if TYPE_CHECKING:
    from kept.serve.run_server import ServerAddress


@click.command("web")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes any that is free. [8740]")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Any but 127.0.0.1 needs a token. [127.0.0.1]")
@click.option("--no-open", is_flag=True, help="Print the link, and do not open a browser.")
@click.pass_obj
def command(options: Globals, port: int | None, host: str | None, no_open: bool) -> None:
    """Show the memory in a browser: search, read, edit and tend it.

    Prints a link that opens the pages once, and opens it in a browser. Serves only this machine, until interrupted.
    """
    from kept.app import open_model
    from kept.serve.run_server import run_server, web_preset

    log_to_stderr()
    loaded = options.load_finished()

    def show(address: ServerAddress) -> None:
        assert address.link is not None
        echo(f"Open {address.link}")
        if address.is_running:
            echo("The pages are served by another process already.", err=True)
        else:
            echo("The link works once, for 15 minutes. Stop with Ctrl-C.", err=True)
        if not no_open:
            _open_browser(address.link)

    run_server(loaded, web_preset(loaded.config, host, port), open_model, ready=show, report=echo)


def _open_browser(link: str) -> None:
    """Open a link in the person's browser, if there is one. A browser in the terminal would hide the output."""
    import os
    import webbrowser

    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.name == "nt"
    if os.environ.get("BROWSER") or has_display or os.uname().sysname == "Darwin":
        try:
            webbrowser.open(link)
        except webbrowser.Error:
            pass  # the link is printed
