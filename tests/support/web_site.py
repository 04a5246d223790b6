"""The web pages of a memory below tmp_path: called in this process, or served on a free port for a browser."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from starlette.testclient import TestClient

from kept import SessionStore
from kept.base.clock import Clock
from kept.base.net import serving
from kept.base.net.serving import RateLimiter, ServerLimits, TokenGate
from kept.config import load_config
from kept.memory import Memory
from kept.models.base import ChatModel
from kept.server.tokens import KnownTokens
from kept.server.web.access import WebAccess
from kept.server.web.visit import Site
from kept.server.web.web_app import make_web_app
from kept.storage.open import open_home
from kept.testing import FakeEmbedder

ORIGIN = "http://127.0.0.1:8740"
KEY = b"k" * 32


def open_site(tmp_path: Path, *, clock: Clock | None = None, model: ChatModel | None = None, **settings: Any) -> Site:
    """Open the site of the workspace and home below tmp_path. ``settings`` have '__' for '.'."""
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    (tmp_path / "workspace").mkdir(exist_ok=True)
    loaded = load_config(
        home=str(tmp_path / "home"), workspace=str(tmp_path / "workspace"), settings=dotted, trust_workspace=True
    )
    embedder = None if "memory_search.provider" in dotted else FakeEmbedder()
    memory = Memory(loaded.config, embedder=embedder, clock=clock)
    return Site(loaded, memory, SessionStore(loaded.config, clock=memory.clock), model=model)


def close_site(site: Site) -> None:
    if site.live is not None:
        site.live.stop()
    site.memory.close()
    site.sessions.close()


def tokens_of(site: Site) -> KnownTokens:
    """Return the tokens of a home, without a limit."""
    return KnownTokens(open_home(site.config), site.memory.clock, RateLimiter(0, 1))


class PageClient:
    """A browser without scripts. It is signed in, and sends what a browser sends."""

    def __init__(self, site: Site, *, signed_in: bool = True, gate: TokenGate | None = None) -> None:
        self.site = site
        self.access = WebAccess(KEY, site.memory.clock, gate or tokens_of(site))
        app: Any = make_web_app(site, self.access, hosts=site.config.gateway.serve.allowed_hosts)
        self.http = TestClient(app, base_url=ORIGIN, follow_redirects=False)
        self.cookie = ""
        if signed_in:
            self.cookie = self.access.make_cookie()
            self.http.cookies.set(self.access.cookie_name, self.cookie)

    def get(self, url: str, **headers: str) -> Any:
        return self.http.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def page(self, url: str, *, status: int = 200) -> BeautifulSoup:
        """Return a page, parsed."""
        response = self.get(url)
        assert response.status_code == status, response.text[:2_000]
        return BeautifulSoup(response.text, "html.parser")

    def post(self, url: str, **fields: str) -> Any:
        """Send a form with the token of a page."""
        fields.setdefault("form_token", self.access.form_token(self.cookie))
        return self.http.post(url, data=fields, headers={"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"})

    def follow(self, response: Any) -> BeautifulSoup:
        """Return the page that an answer redirects to."""
        assert response.status_code == 303, response.text[:2_000]
        return self.page(response.headers["location"])


@contextmanager
def visiting(
    tmp_path: Path, *, signed_in: bool = True, gate: TokenGate | None = None, **options: Any
) -> Iterator[PageClient]:
    site = open_site(tmp_path, **options)
    client = PageClient(site, signed_in=signed_in, gate=gate)
    try:
        yield client
    finally:
        client.http.close()
        close_site(site)


@contextmanager
def served(site: Site) -> Iterator[str]:
    """Serve a site on a free port. Yield a link that opens its pages."""
    bound = serving.listen("127.0.0.1", 0, error=AssertionError, hint="")  # type: ignore[arg-type]
    port = bound.getsockname()[1]
    access = WebAccess(KEY, site.memory.clock, tokens_of(site))
    server = serving.make_server(make_web_app(site, access), ServerLimits(), closing_s=3.0)
    site.is_stopping = lambda: server.should_exit

    async def run() -> None:
        await server.serve(sockets=[bound])
        await site.close_chat()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/open?key={access.make_link_key()}"
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
        close_site(site)


def texts(page: BeautifulSoup | Tag, selector: str) -> list[str]:
    """Return the text of every element that a CSS selector finds, with single spaces."""
    return [" ".join(element.get_text(" ").split()) for element in page.select(selector)]
