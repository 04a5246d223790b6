"""Measure the CPU time of the server for pages of `kept web`.

    python -m benchmarks.web_pages --notes 10000

Print the median and the 95th percentile for each page, with `Memory.search` for comparison. Requests go through the
whole application, guards included, without a socket. Notes are generated and indexed in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from benchmarks.corpus import SEED, Corpus, write_notes
from kept.base.clock import SystemClock
from kept.base.net.serving import RateLimiter
from kept.config import load_config
from kept.memory import Memory
from kept.server.live import LiveIndex
from kept.server.tokens import KnownTokens
from kept.server.web.access import WebAccess
from kept.server.web.visit import Site
from kept.server.web.web_app import make_web_app
from kept.sessions.store import SessionStore
from kept.storage.open import open_home

REPEATS = 40
KEY = b"k" * 32


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web_pages")
    parser.add_argument("--notes", type=int, default=10_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kept-web-bench-") as scratch:
        workspace = os.path.join(scratch, "workspace")
        write_notes(workspace, notes=chosen.notes)
        loaded = load_config(home=os.path.join(scratch, "home"), workspace=workspace, environ={})
        site = Site(loaded, Memory(loaded.config), SessionStore(loaded.config))
        site.memory.sync()
        site.live = LiveIndex(site.memory).start()
        try:
            asyncio.run(measure(site, chosen.notes))
        finally:
            site.memory.close()
            site.sessions.close()


async def measure(site: Site, notes: int) -> None:
    questions = Corpus(SEED).questions(REPEATS)
    clock = SystemClock()
    access = WebAccess(KEY, clock, KnownTokens(open_home(site.config), clock, RateLimiter(0, 1)))
    app = make_web_app(site, access)
    headers = [(b"host", b"127.0.0.1"), (b"cookie", f"{access.cookie_name}={access.make_cookie()}".encode())]
    path = site.memory.list(max_results=1).files[0].path

    async def get(url: str) -> None:
        path, _, query = url.partition("?")
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
        scope |= {"scheme": "http", "server": ("127.0.0.1", 8740), "root_path": "", "http_version": "1.1"}
        statuses = []

        async def receive() -> dict:
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: dict) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await app(scope, receive, send)
        assert statuses == [200], (url, statuses)

    print(f"{notes:,} notes, {REPEATS} requests each, CPU of the process in ms")
    print(f"{'page':<28} {'first':>7} {'p50':>7} {'p95':>7}")
    pages: dict[str, Callable[[str], Awaitable[None]]] = {
        "search, nothing asked": lambda _: get("/"),
        "search": lambda question: get(f"/?{urlencode({'q': question})}"),
        "timeline": lambda _: get("/timeline"),
        "notes": lambda _: get("/notes"),
        "notes, page 100": lambda _: get("/notes?page=100"),
        "a note": lambda _: get(f"/note/{path}"),
        "changes": lambda _: get("/changes"),
        "Memory.search": lambda question: asyncio.to_thread(site.memory.search, question, max_results=20),
    }
    for name, page in pages.items():
        spent = []
        for question in questions:
            started = time.process_time()
            await page(question)
            spent.append(1_000 * (time.process_time() - started))
        ordered = sorted(spent[1:])
        print(
            f"{name:<28} {spent[0]:>7.1f} {ordered[len(ordered) // 2]:>7.1f} {ordered[len(ordered) * 95 // 100]:>7.1f}"
        )


if __name__ == "__main__":
    main()
