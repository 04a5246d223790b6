"""Preview of a reply: a message in the chat that is edited while the reply is written.

The message is sent with a placeholder and recorded in the inbox before any words of the reply go into it. So if the
process is killed at any moment, the next one edits the same message, and no words appear twice. At worst a placeholder
stays behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kept.remote_errors import DeliveryRefused, NotSent
from kept.responder.answer_run import AnswerRun
from kept.responder.channel import Channel, split_reply

RecordPreview = Callable[[Mapping[str, Any]], Awaitable[AnswerRun]]
"""Records the message that shows the preview of a run."""

log = logging.getLogger(__name__)


class ReplyPreview:
    """Preview of one answer. An answer finished within ``after_s`` of its first word is sent without a preview."""

    def __init__(
        self, channel: Channel, to: Mapping[str, Any], run: AnswerRun, record: RecordPreview, *, after_s: float
    ) -> None:
        self._channel = channel
        self._to = to
        self._message = run.preview
        self._record = record
        self._after_s = after_s
        self._text = ""
        self._shown = ""
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def add(self, text: str) -> None:
        self._text += text
        self._changed.set()

    def withdraw(self) -> bool:
        """Drop the text: the answer begins again, and the next edit replaces what is shown."""
        self._text = ""
        return True

    async def finish(self) -> None:
        """Stop editing. When this returns, no edit is on its way that could arrive after the final text."""
        self._ended.set()
        self._changed.set()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await self._changed.wait()
            await self._pause(self._after_s)
            while not self._ended.is_set():
                pause_s = await self._show()
                await self._pause(pause_s)
                await self._changed.wait()
                self._changed.clear()
        except Exception:  # the preview is optional: the reply itself is delivered in any case
            log.exception("%s: a preview could not be shown", self._to.get("chat"))

    async def _show(self) -> float:
        """Show the text so far, and return how long to wait before the next edit."""
        parts = split_reply(self._text, self._channel.limit, measure=self._channel.measure)
        pause_s = self._channel.preview_interval_s(self._to) or 0.0
        if not parts or parts[0] == self._shown:
            return pause_s
        try:
            if self._message is None:
                self._message = await self._channel.open_preview(self._to)
                await self._record(self._message)
            await self._channel.edit(self._message, parts[0])
            self._shown = parts[0]
        except NotSent as exc:
            return max(pause_s, exc.retry_after_s or 0.0)
        except DeliveryRefused as exc:
            log.warning("a preview could not be shown (%s)", exc.message)
            self._ended.set()
        return pause_s

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            pass
