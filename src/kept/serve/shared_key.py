"""The key that signs the cookies and forms of the pages: that of the home, or in a team the one of all machines."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable

from kept.agent.services import load_secret
from kept.config import Config
from kept.errors import StoreError, StoreUnreachable
from kept.web.web_access import WebAccess

_RETRY_S = 2.0


class SharedKey:
    """Key of the pages of an agent.

    A server that starts while the database is away begins with the key of its home. Its role may be one that must not
    read the key: then it stays with that.
    """

    def __init__(self, config: Config) -> None:
        self._own = load_secret(config.paths.web_key)
        self.use_link: Callable[..., bool] | None = None
        """Uses up a one-time link for all machines."""
        self._load_shared: Callable[[], bytes] | None = None
        # The same in all processes of a home or team, whatever their ports, and another for each.
        seed, name = self._own, b"cookie"
        store = config.memory_search.store
        if store.is_shared:
            from kept.postgres.open_database import open_database
            from kept.web.team_sign_in import TeamSignIn

            shared = TeamSignIn(open_database(store), config.agent_id)
            self._load_shared, self.use_link = shared.load_key, shared.use_link
            seed, name = b"team", f"{store.schema} {config.agent_id}".encode()
        self.cookie_name = f"kept-{hmac.new(seed, name, hashlib.sha256).hexdigest()[:12]}"

    def load(self) -> bytes:
        """Return the key to begin with."""
        if self._load_shared is None:
            return self._own
        try:
            return self._load_shared()
        except StoreError:
            return self._own

    async def take_over(self, access: WebAccess) -> None:
        """Use the key of the team as soon as the database answers. Browsers that signed in before do so again."""
        while self._load_shared is not None and access.key == self._own:
            try:
                access.key = await asyncio.to_thread(self._load_shared)
            except StoreUnreachable:
                await asyncio.sleep(_RETRY_S)
            except StoreError:
                return
