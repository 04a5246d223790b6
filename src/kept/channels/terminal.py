"""The terminal: a conversation line by line, or a single question from a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kept.agent.events import AgentEvent
from kept.responder.local_conversation import LocalConversation

WAIT_INTERVAL_S = 0.1


class TerminalScreen(Protocol):
    """Shows the events of an answer, in their order."""

    def show(self, event: AgentEvent) -> None: ...

    def wait(self) -> None:
        """Show that the answer is being worked on. Called several times a second."""
        ...

    def stopped(self) -> None:
        """Show that the answer was cancelled."""
        ...

    def failed(self, error: Exception) -> None: ...


ReadMessage = Callable[[], str]
"""Returns what a person typed or pasted. Raises EOFError at the end, KeyboardInterrupt if it was discarded."""


def talk(
    conversation: LocalConversation, screen: TerminalScreen, read_message: ReadMessage, runner: asyncio.Runner
) -> None:
    """Answer messages until there are no more. Ctrl-C stops an answer, not the conversation."""
    while True:
        try:
            text = read_message().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text:
            _answer(conversation, screen, text, runner)


async def answer_on_screen(conversation: LocalConversation, screen: TerminalScreen, text: str) -> None:
    """Answer a message, with a sign that it is being worked on wherever the answer takes time."""

    async def keep_waiting() -> None:
        while True:
            screen.wait()
            await asyncio.sleep(WAIT_INTERVAL_S)

    waiting = asyncio.create_task(keep_waiting())
    try:
        await conversation.answer(text, screen.show)
    finally:
        waiting.cancel()


def _answer(conversation: LocalConversation, screen: TerminalScreen, text: str, runner: asyncio.Runner) -> None:
    try:
        runner.run(answer_on_screen(conversation, screen, text))
    except KeyboardInterrupt:
        screen.stopped()
        runner.run(conversation.stop())
    except Exception as exc:  # noqa: BLE001 - an answer that fails must not end the conversation
        screen.failed(exc)
