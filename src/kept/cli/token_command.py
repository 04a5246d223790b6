"""kept token create | list | revoke"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import click

from kept.base.clock import SystemClock, utc_now
from kept.base.grants import SCOPES
from kept.cli.options import kept_command, option
from kept.cli.output import warn
from kept.cli.root import Globals
from kept.cli.terminal_layout import table_text
from kept.errors import UsageError

if TYPE_CHECKING:
    from kept.base.grants import TokenScope
    from kept.config import LoadedConfig
    from kept.server.tokens import AccessToken, TokenBook
    from kept.storage.record_store import Book

_HOURS = {"h": 1, "d": 24, "w": 168}


@click.group("token")
def command() -> None:
    """Make tokens for the clients of 'kept serve', and revoke them.

    A token has scopes: read, write (and read), review (and read), or admin (everything).
    """


@kept_command("create", command)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What it allows. May be repeated.",
)
@option("--for-agent", "NAME", "Only for this agent.")
@option(
    "--for-person",
    "PERSON",
    "Only for what this person sees: a name of session.identity_links, or an account such as http:ada.",
)
@option("--expires", "TIME", "When it ends: 12h, 30d, 8w, or a day such as 2027-01-31.")
def create(
    options: Globals,
    name: str,
    scopes: tuple[TokenScope, ...],
    for_agent: str | None,
    for_person: str | None,
    expires: str | None,
) -> None:
    """Create the token NAME and print it. It is shown only once: what is stored is its hash.

    \b
    kept token create ci --scope read --expires 90d
    kept token create ada --scope write --for-person http:ada
    """
    from kept.config.layers import require_agent, settings_by_agent
    from kept.server.tokens import make_token
    from kept.sessions.people import People

    loaded = options.load()
    now = utc_now(SystemClock(), to_the_second=True)
    # A token for a misspelt name would be refused everywhere.
    config = loaded.config
    if for_agent is not None:
        require_agent(config.home, loaded.user_file.path, for_agent)
        config = settings_by_agent(loaded)[for_agent].config
    if for_person is not None:
        People(config).find(for_person)
    ends = _parse_expiry(expires, now) if expires else None
    token, secret = make_token(name, scopes, now, agent=for_agent, person=for_person, expires=ends)
    _stored(loaded).change(lambda book: book.with_token(token, now))
    options.report({"secret": secret, "token": _shown(token, now)}, secret)
    options.hint("Store it now: it is not shown again.")


@kept_command("list", command)
def list_tokens(options: Globals) -> None:
    """List the tokens: what they allow, and whether they do."""
    stored, now = _stored(options.load()), utc_now(SystemClock(), to_the_second=True)
    tokens = stored.read().tokens
    rows = [
        (
            token.id,
            token.name,
            ", ".join(token.scopes),
            ", ".join(filter(None, (token.agent, token.person))) or "everything",
            f"{token.expires:%Y-%m-%d %H:%M}" if token.expires else "never",
            token.state(now),
        )
        for token in tokens
    ]
    table = table_text(("id", "name", "scopes", "for", "expires", "state"), rows)
    none = "There are no tokens. Create one: kept token create ci --scope read"
    options.report({"tokens": [_shown(token, now) for token in tokens]}, table or none)
    for fault in stored.faults:
        warn(f"{fault}. It lets nobody in.")


@kept_command("revoke", command)
@click.argument("name")
def revoke(options: Globals, name: str) -> None:
    """Revoke the token NAME, which may be its id. Running servers refuse it from now on, and end its streams."""
    now = utc_now(SystemClock(), to_the_second=True)
    revoked = _stored(options.load()).change(lambda book: book.revoke(name, now)).get(name)
    options.report({"revoked": _shown(revoked, now)}, f"Revoked {revoked.name} ({revoked.id}).")


def _stored(loaded: LoadedConfig) -> Book[TokenBook]:
    from kept.server.tokens import token_book
    from kept.storage.open import open_home

    return token_book(open_home(loaded.config))


def _shown(token: AccessToken, now: dt.datetime) -> dict[str, Any]:
    from kept.agent.tools.record_json import to_json

    fields = {name: value for name, value in to_json(token).items() if name != "digest"}
    return {**fields, "state": token.state(now)}


def _parse_expiry(text: str, now: dt.datetime) -> dt.datetime:
    match = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", text.strip())
    if match:
        return now + dt.timedelta(hours=int(match[1]) * _HOURS[match[2]])
    try:
        return dt.datetime.combine(dt.date.fromisoformat(text.strip()), dt.time()).astimezone(dt.UTC)
    except (ValueError, OverflowError) as exc:
        hint = "Write it as 12h, 30d, 8w, or as a day such as 2027-01-31."
        raise UsageError(f"'{text[:40]}' is not a time at which a token could end.", hint=hint) from exc
