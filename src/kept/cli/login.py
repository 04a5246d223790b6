"""kept login and kept logout: use a memory that a server keeps"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from kept.cli.options import kept_command
from kept.cli.output import echo, read_stdin
from kept.cli.root import Globals
from kept.client.server_connection import Login, ServerConnection, TokenRights, write_login
from kept.config.layers import LOGIN, find_home
from kept.errors import NotFound

_MAX_TOKEN_BYTES = 1_000


@kept_command("login")
@click.argument("url")
def command(options: Globals, url: str) -> None:
    """Use the memory that the server at URL keeps, instead of one on this machine.

    The token is asked for, or read from standard input. It is stored in the home, readable only by you. From then on
    add, search, chat and the other commands about the memory work on the server.

    \b
    kept login https://memory.example.org
    kept login http://127.0.0.1:8750
    """
    from kept.base.durable import make_private_folder
    from kept.storage.open import open_folder

    token = click.prompt("Token", hide_input=True, err=True) if sys.stdin.isatty() else read_stdin(_MAX_TOKEN_BYTES)
    login = Login.of(url, token.strip())
    connection = ServerConnection(login)
    rights = connection.call("rights", TokenRights)
    connection.close()
    home = find_home(options.home)
    make_private_folder(home)
    write_login(open_folder(home), replace(login, agent=rights.agent, person=rights.person))
    echo(f"Logged in to {login.url} as {rights.name} ({', '.join(rights.scopes)}), agent {rights.agent}.")


@kept_command("logout")
def logout_command(options: Globals) -> None:
    """Forget the token, and use the memory of this machine again."""
    from kept.storage.open import open_folder

    home = find_home(options.home)
    if not os.path.exists(os.path.join(home, LOGIN)):
        raise NotFound("This machine is not logged in to a server.", hint="'kept login URL' does that.")
    write_login(open_folder(home), None)
    echo("Logged out. The token still works elsewhere: 'kept token revoke' ends it.")
