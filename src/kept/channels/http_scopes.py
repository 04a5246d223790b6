"""The scope that a token needs for each route of the HTTP channel, and whom the token of a person speaks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kept.channels import chat_completions, http_messages
from kept.errors import KeptError, ScopeMissing
from kept.grants import Grant, TokenScope
from kept.net.serving import GRANT, TOKEN_USER, note_route
from kept.sessions.people import Account, People, read_account

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    Endpoint = Callable[[Request], Awaitable[Response]]
    ShowError = Callable[[Request, KeptError], Response]


class ScopedRoutes:
    """Makes routes that let a request in if its token has the scope."""

    def __init__(self, people: People, show_error: ShowError) -> None:
        self._people = people
        self._show_error = show_error

    def make(self, method: str, path: str, endpoint: Endpoint, scope: TokenScope | None) -> Route:
        """Return a route. ``scope`` is None for one that is open to everybody."""
        from starlette.routing import Route

        async def answer(request: Request) -> Response:
            note_route(request.scope, path)
            grant: Grant | None = request.scope.get(GRANT)
            try:
                if grant is not None and scope is not None:
                    grant.require(scope)
                    self._note_person(request, grant)
            except KeptError as exc:
                return self._show_error(request, exc)
            return await endpoint(request)

        route = Route(path, answer, methods=[method])
        route.name = scope or "open"  # shown to the test that lists all routes
        return route

    def _note_person(self, request: Request, grant: Grant) -> None:
        """Let the token of a person speak for that person only, as a token of `gateway.http.user_tokens` does."""
        if grant.person is None:
            return
        is_chat = request.url.path.startswith(chat_completions.PATHS)
        channel = chat_completions.NAME if is_chat else http_messages.NAME
        user = find_user(self._people, grant.person, channel)
        if user is None:
            raise ScopeMissing(
                f"The person of the token '{grant.name}' has no account on the channel '{channel}'.",
                hint=f"Add {channel}:NAME to the person in session.identity_links.",
            )
        request.scope[TOKEN_USER] = user


def find_user(people: People, person: str, channel: str) -> str | None:
    """Return the name of a person on a channel: that of an account there, or else the one on the HTTP channel, unless
    it is somebody else's."""
    name = person if person in people.settings.identity_links else people.name_of(read_account(person))
    linked = people.settings.identity_links.get(name)
    accounts = [read_account(text) for text in linked or (person,)]
    private = [account for account in accounts if not account.is_group]
    for account in private:
        if account.channel == channel:
            return account.name
    for account in private:
        here = Account(channel, account.name)
        if account.channel == http_messages.NAME and people.name_of(here) == str(here):
            return account.name
    return None
