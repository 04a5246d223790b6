"""The chat on the pages of a team: messages go through its inbox, so any machine accepts one, and one of them answers.

At the machine that answers, a page shows the reply as it is written. Elsewhere it appears when it is complete.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable

from kept.agent.events import Inbound
from kept.clock import Clock, new_id
from kept.errors import KeptError, UsageError
from kept.remote_errors import MessageConflict
from kept.responder.answer_run import AcceptedMessage, message_status
from kept.responder.dispatcher import APPROVAL, find_command
from kept.responder.local_conversation import NAME
from kept.responder.responder import Responder
from kept.sessions.entries import CHANNEL
from kept.sessions.session_key import SessionKey
from kept.values import frozen
from kept.web.running_answer import RunningAnswer
from kept.web.site import POLL_S

_ABOUT_ANSWERS = ("stop", "approve", "deny")

log = logging.getLogger(__name__)


@frozen
class Exchange:
    """A message and its reply, from the inbox."""

    session_id: str
    when: dt.datetime
    question: str
    reply: str


class InboxChat:
    """Conversations on the pages of this machine. Its methods run in the event loop of the server."""

    def __init__(self, responder: Responder, clock: Clock, is_stopping: Callable[[], bool]) -> None:
        self.responder = responder
        self._clock = clock
        self._is_stopping = is_stopping
        self._answers: dict[str, RunningAnswer] = {}
        """Answers that are being followed, by the key of their conversation."""

    def find_answer(self, key: SessionKey) -> RunningAnswer | None:
        """Return the answer that is being written in a conversation, on whichever machine."""
        known = self._answers.get(str(key))
        message = self._find_unanswered(key) if known is None else None
        return self._follow(message) if message is not None else known

    def _find_unanswered(self, key: SessionKey) -> AcceptedMessage | None:
        for message in self.responder.messages_of(NAME):
            run = self.responder.inbox.find_run(message)
            is_open = message.key == str(key) and message_status(run) in ("waiting", "answering")
            if is_open and not _is_about_answers(message):
                return message
        return None

    def exchanges(self, key: SessionKey) -> list[Exchange]:
        """Return what was said in a conversation, as far as the inbox still has it."""
        exchanges = []
        for message in self.responder.messages_of(NAME):
            run = self.responder.inbox.find_run(message)
            if message.key != str(key) or run is None or run.parts is None or not message.inbound.text:
                continue
            if not _is_about_answers(message):
                exchanges.append(Exchange(run.session_id, message.accepted_at, message.inbound.text, run.reply or ""))
        return exchanges

    async def ask(self, key: SessionKey, text: str) -> RunningAnswer:
        """Begin to answer a message. Raise UsageError while another answer of the conversation is being written."""
        if self.find_answer(key) is not None:
            raise UsageError("An answer is being written.", hint="Wait for it, or stop it.")
        return self._follow(await self._accept(key, text))

    async def stop(self, key: SessionKey) -> None:
        """Stop the answer of a conversation. Another machine that writes it is told so by a message."""
        message = self._find_unanswered(key)
        if message is None:
            return
        try:
            await self.responder.cancel(NAME, message.id)
        except MessageConflict:
            await self._accept(key, "/stop")

    async def decide(self, key: SessionKey, approval_id: str, *, allow: bool) -> None:
        """Decide about a tool call. Another machine that waits for it is told so by a message."""
        if self.responder.decide(approval_id, allow=allow, by=NAME):
            return
        if self.responder.inbox.owns(str(key)) or self._find_unanswered(key) is None:
            raise UsageError("The agent no longer waits for this decision.")
        await self._accept(key, "/approve" if allow else "/deny", **{APPROVAL: approval_id})

    def close(self) -> None:
        for answer in self._answers.values():
            if answer.task is not None:
                answer.task.cancel()

    async def _accept(self, key: SessionKey, text: str, **metadata: str) -> AcceptedMessage:
        message = Inbound(new_id(), text, timestamp=self._clock.now(), metadata={CHANNEL: NAME, **metadata})
        return await self.responder.accept(key, message)

    def _follow(self, message: AcceptedMessage) -> RunningAnswer:
        answer = self._answers[message.key] = RunningAnswer(message.inbound.text)
        answer.task = asyncio.create_task(self._run(message, answer))
        return answer

    async def _run(self, message: AcceptedMessage, answer: RunningAnswer) -> None:
        try:
            while not self._is_finished(message, answer):
                if self._is_stopping():
                    answer.add(type="notice", text="This server stops. Another one goes on; reload the page.")
                    return
                async for event in self.responder.follow(NAME, message.id, heartbeat_s=POLL_S):
                    if event is not None:
                        answer.show(event)
                    elif self._is_stopping():
                        break
        except KeptError as exc:
            answer.add(type="error", text=f"{exc.message} {exc.hint}".strip())
        except Exception:  # a page that fails must not end the server
            log.exception("an answer cannot be followed")
            answer.add(type="error", text="The answer cannot be followed. Reload the page.")
        finally:
            if self._answers.get(message.key) is answer:
                del self._answers[message.key]
            answer.finish()

    def _is_finished(self, message: AcceptedMessage, answer: RunningAnswer) -> bool:
        """Return whether a message has its reply, or will have none. Show what was not shown as it was written."""
        _, run = self.responder.get(NAME, message.id)
        if run is None or (run.parts is None and not run.cancelled):
            return False
        if run.cancelled:
            answer.add(type="notice", text="Stopped.")
        elif not answer.text and run.reply:
            answer.add(type="delta", text=run.reply)
        return True


def _is_about_answers(message: AcceptedMessage) -> bool:
    """Return whether a message is a command about the answer that is being written, and nothing that is said."""
    command = find_command(message.inbound)
    return command is not None and command.name in _ABOUT_ANSWERS
