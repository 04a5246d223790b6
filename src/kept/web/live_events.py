"""Events for pages that show what is going on: a browser is told when the state has changed, and fetches it then."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from kept.errors import KeptError
from kept.live import LiveState
from kept.responder.inbox import InboxState, find_inbox_state
from kept.values import frozen
from kept.web.site import Site
from kept.web.visit import Visit

_STREAM_POLLS = 600
"""Looks at the state for each connection. The browser connects again by itself, and a lost one ends."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@frozen
class Activity:
    """Current state of the index, of messages that wait, and of changes to review."""

    live: LiveState
    inbox: InboxState | None
    review: int

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def read_activity(site: Site) -> Activity:
    try:
        inbox = find_inbox_state(site.config)
        waiting = site.memory.review.count()
    except (KeptError, OSError):  # the page of the checks reports a file that cannot be read
        inbox, waiting = None, 0
    return Activity(site.live.state() if site.live else LiveState(), inbox, waiting)


async def stream_events(visit: Visit) -> Response:
    """Answer with a stream of events, one for every change of the activity."""
    return StreamingResponse(_events(visit), media_type="text/event-stream", headers=_HEADERS)


async def _events(visit: Visit) -> AsyncIterator[bytes]:
    known = ""
    for _ in range(_STREAM_POLLS):
        if visit.site.is_stopping():
            return
        digest = (await asyncio.to_thread(read_activity, visit.site)).digest
        if digest != known:
            known = digest
            yield f"data: {digest}\n\n".encode()
        else:
            yield b": nothing new\n\n"  # notices a browser that is gone
        await asyncio.sleep(visit.site.poll_s)
