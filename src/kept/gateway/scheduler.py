"""Asks the agent what is due: schedules, and the heartbeat.

A run is a message in the inbox like any other, so it is answered once, in order with what people write, and its reply
is delivered as theirs are. Its name contains the time at which it was due: the inbox knows a run that a process which
was killed has accepted already.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from kept.agent.events import Inbound
from kept.base.clock import Clock, utc_now
from kept.config import Config
from kept.errors import KeptError, LockMissing, ScheduleInvalid, WriteFailed
from kept.gateway.channel import channel_name
from kept.gateway.responder import Responder
from kept.sessions.entries import HEARTBEAT
from kept.sessions.people import THREAD, thread_id
from kept.sessions.schedules.schedule_book import (
    DueRun,
    ScheduleBook,
    find_heartbeat,
    open_schedules,
    plan_due,
    read_heartbeat,
)
from kept.sessions.schedules.time_rule import find_local_zone, get_zone
from kept.sessions.session_key import DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, SessionKey, parse_key

OWN_CHANNEL = "schedule"
"""Channel of schedules that nobody is sent: their replies are read in the session."""
POLL_S = 15.0
"""How late a schedule may run."""
_HEARTBEAT_NAME = "heartbeat"
_HEARTBEAT_TEXT = (
    "[Heartbeat: nobody has written] Go through HEARTBEAT.md. Say what needs the person's attention now and what you "
    "have not told them yet. If there is nothing, answer NO_REPLY."
)
_NO_ENTRY = re.compile(
    r"<!--(?:.|\n)*?-->|^[ \t]*#.*$|^[ \t]*(?:[-*+]|\d+[.)])?[ \t]*(?:\[[ x]\][ \t]*)?$", re.MULTILINE
)

log = logging.getLogger(__name__)


CATCH_UP = dt.timedelta(hours=12)
"""How late a schedule may run that was missed while no gateway ran."""


def target_key(to: str, agent_id: str, *, own_id: str) -> SessionKey:
    """Return the conversation that a schedule belongs to. Raise ScheduleInvalid if ``to`` cannot be read."""
    if not to:
        return SessionKey(agent_id, OWN_CHANNEL, DEFAULT_ACCOUNT, DEFAULT_CHAT_TYPE, own_id)
    try:
        key = parse_key(to, agent_id=agent_id)
    except KeptError as exc:
        raise ScheduleInvalid(exc.message, hint=exc.hint) from exc
    if key.agent_id != agent_id:
        raise ScheduleInvalid(f"{to} is a conversation of another agent.", hint=f"Use kept --agent {key.agent_id}.")
    if key.channel == "telegram" and key.user_id.startswith("-") and key.chat_type == DEFAULT_CHAT_TYPE:
        return replace(key, chat_type="group")
    return key


def has_entries(checklist: str) -> bool:
    """Return whether a checklist says anything besides headings, comments and empty items."""
    return bool(_NO_ENTRY.sub("", checklist).strip())


class Scheduler:
    """Runs schedules and heartbeats of one agent, in the process that answers its messages."""

    def __init__(
        self,
        responder: Responder,
        config: Config,
        *,
        clock: Clock,
        read_checklist: Callable[[], str],
    ) -> None:
        self.book = open_schedules(config)
        self._responder = responder
        self._config = config
        self._clock = clock
        self._read_checklist = read_checklist
        settings = config.agent.heartbeat
        is_on = bool(settings.every) and config.trusts_workspace
        self._heartbeat = read_heartbeat(settings, get_zone(find_local_zone()), now=clock.now()) if is_on else None
        if self._heartbeat:
            self._heartbeat_target()  # raises if it cannot be read

    async def run(self) -> None:
        """Run what is due until cancelled. Whatever fails is tried again at the next look."""
        while True:
            try:
                await self.tick()
            except KeptError as exc:
                log.warning("schedules: %s", exc.message)
            except Exception:
                log.exception("schedules: a look at what is due failed")
            await asyncio.sleep(POLL_S)

    async def tick(self) -> None:
        if not self.book.exists() and self._heartbeat is None:
            return
        book = await asyncio.to_thread(self.book.read)
        now = utc_now(self._clock)
        for run in plan_due(book.schedules, now, catch_up=CATCH_UP):
            await self._start(run)
        due = find_heartbeat(self._heartbeat, book.heartbeat, now) if self._heartbeat else None
        if due is not None:
            await self._beat(due)

    async def _start(self, run: DueRun) -> None:
        """Put a run into the inbox, then record that. A run that cannot be addressed is recorded with the reason."""
        schedule, problem = run.schedule, ""
        try:
            key = target_key(schedule.to, self._config.agent_id, own_id=schedule.id)
            metadata = {**self._address(key), "schedule": schedule.id}
            # The same text at each attempt, so that the inbox knows it again.
            text = f"[Scheduled by the person, {schedule.when}]\n{schedule.text}"
            message = Inbound(run.message_id, text, timestamp=run.due, metadata=metadata)
            await self._responder.accept(key, message)
        except ScheduleInvalid as exc:
            problem = exc.message
            log.warning("schedules: %s was not run: %s", schedule.id, problem)

        def record_run(book: ScheduleBook) -> ScheduleBook:
            known = [each for each in book.schedules if each.id == schedule.id]  # none if it was removed meanwhile
            return book.with_schedule(replace(known[0], last_due=run.due, problem=problem)) if known else book

        await self._change(record_run)

    async def _beat(self, due: dt.datetime) -> None:
        checklist = await asyncio.to_thread(self._read_checklist)
        if has_entries(checklist):
            key = self._heartbeat_target()
            metadata = {**self._address(key), HEARTBEAT: True}
            message = Inbound(f"heartbeat-{due:%Y%m%dT%H%M%SZ}", _HEARTBEAT_TEXT, timestamp=due, metadata=metadata)
            if key.channel != OWN_CHANNEL and key.chat_type == DEFAULT_CHAT_TYPE:
                # A conversation of its own with the person, so that heartbeats do not fill theirs.
                key = replace(key, chat_type=THREAD, user_id=thread_id(key.user_id, _HEARTBEAT_NAME))
            await self._responder.accept(key, message)
        await self._change(lambda book: replace(book, heartbeat=due))

    def _heartbeat_target(self) -> SessionKey:
        to = self._config.agent.heartbeat.target or ""
        return target_key(to, self._config.agent_id, own_id=_HEARTBEAT_NAME)

    def _address(self, key: SessionKey) -> Mapping[str, object]:
        channel = self._responder.channels.get(channel_name(key))
        if channel is None:
            raise ScheduleInvalid(f"The gateway serves no channel '{key.channel}'.")
        return channel.address(key.user_id)

    async def _change(self, change: Callable[[ScheduleBook], ScheduleBook]) -> None:
        """Record a run. If the disk is full, the inbox knows the run until the next attempt."""
        try:
            await asyncio.to_thread(self.book.change, change)
        except (WriteFailed, LockMissing) as exc:
            log.warning("schedules: %s", exc.message)
