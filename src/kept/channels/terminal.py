"""The terminal: a conversation line by line, or a single question from a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from kept.agent.events import AgentEvent
from kept.responder.local_conversation import LocalConversation


class TerminalScreen(Protocol):
    """Shows the events of an answer, in their order."""

    def show(self, event: AgentEvent) -> None: ...

    def stopped(self) -> None:
        """Show that the answer was cancelled."""
        ...

    def failed(self, error: Exception) -> None: ...


ReadLine = Callable[[], str]
"""Returns the next line. Raises EOFError at the end, KeyboardInterrupt if the line was discarded."""


def talk(conversation: LocalConversation, screen: TerminalScreen, read_line: ReadLine, runner: asyncio.Runner) -> None:
    """Answer lines until there are no more. Ctrl-C stops an answer, not the conversation."""
    while True:
        try:
            text = read_line().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text:
            _answer(conversation, screen, text, runner)


def _answer(conversation: LocalConversation, screen: TerminalScreen, text: str, runner: asyncio.Runner) -> None:
    try:
        runner.run(conversation.answer(text, screen.show))
    except KeyboardInterrupt:
        screen.stopped()
        runner.run(conversation.stop())
    except Exception as exc:  # noqa: BLE001 - an answer that fails must not end the conversation
        screen.failed(exc)
