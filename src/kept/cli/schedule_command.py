"""kept schedule add | list | remove | pause | resume"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kept.base.clock import SystemClock, new_id, utc_now
from kept.cli.options import kept_command, option
from kept.cli.output import cyan, printable, warn
from kept.cli.root import Globals
from kept.cli.terminal_layout import table_text
from kept.errors import EmptyNote, LockBusy, ScheduleInvalid

if TYPE_CHECKING:
    from kept.config import Config
    from kept.sessions.schedules.schedule_book import Schedule, ScheduleBook
    from kept.storage.record_store import Book

_ID_CHARS = 6


@click.group("schedule")
def command() -> None:
    """Ask the agent something at set times.

    The gateway does the asking ('kept gateway') and sends the reply to a conversation. What it missed while it was not
    running is asked once when it starts, unless it is too late.
    """


@kept_command("add", command)
@click.argument("when")
@click.argument("text")
@option("--to", "KEY", "Conversation that gets the reply, such as telegram:5054.", default="")
@option("--timezone", "ZONE", "Time zone, such as Europe/Berlin. Default: that of this machine.")
def add(options: Globals, when: str, text: str, to: str, timezone: str | None) -> None:
    """Ask TEXT at the times that WHEN names, in plain words or in the five fields of cron.

    \b
    kept schedule add "every weekday 8:00" "What is due today?" --to telegram:5054
    kept schedule add "every 2 hours" "Is there news about the storm?" --to telegram:5054
    kept schedule add "tomorrow 9:30" "Remind me to call Ada." --to telegram:5054
    kept schedule add "0 18 * * 5" "Summarise my week."

    Without --to, nobody is sent the reply; 'kept sessions show schedule:ID' shows it. An agent that has nothing to say
    sends nothing.
    """
    from kept.gateway.scheduler import target_key
    from kept.sessions.schedules.schedule_book import MAX_TEXT_CHARS, Schedule
    from kept.sessions.schedules.time_rule import find_local_zone, get_zone, parse_rule

    config = options.load().config
    if not text.strip():
        raise EmptyNote("There is nothing to ask.")
    if len(text) > MAX_TEXT_CHARS:
        raise ScheduleInvalid(f"The text has more than {MAX_TEXT_CHARS:,} characters.", hint="Put it into a note.")
    zone = get_zone(timezone or find_local_zone())
    now = utc_now(SystemClock(), to_the_second=True)
    parse_rule(when, zone, now=now)
    schedule = Schedule(new_id()[:_ID_CHARS], when, zone.key, text, to, now)
    target_key(to, config.agent_id, own_id=schedule.id)
    _book(config).change(lambda book: book.with_schedule(schedule))
    _report(options, schedule, f"Added {cyan(schedule.id)}: {_next_text(schedule)}.")
    channel = to.split(":")[2] if to.startswith("agent:") else to.partition(":")[0]
    if options.as_json or not to:
        return
    if channel in ("telegram", "discord") and not (getattr(config.gateway, channel).token or config.keys.find(channel)):
        warn(f"The channel {channel} is off: there is no token in gateway.{channel}.token.")
    if not is_gateway_running(config):
        warn("No gateway is running: nothing is asked until one is. Start it: kept gateway, or kept gateway --install")


@kept_command("list", command)
def list_schedules(options: Globals) -> None:
    """List the schedules with their next times."""
    config = options.load().config
    file = _book(config)
    book = file.read()
    rows = [
        (schedule.id, schedule.when, _next_text(schedule), schedule.to or "nobody", schedule.text)
        for schedule in book.schedules
    ]
    none = 'There are no schedules. Add one: kept schedule add "every weekday 8:00" "What is due today?"'
    table = table_text(("id", "when", "next", "to", "text"), rows) or none
    options.report({"schedules": [schedule_json(schedule) for schedule in book.schedules]}, table)
    for fault in file.faults:
        warn(f"{fault}. The next change moves it away.")


@kept_command("remove", command)
@click.argument("schedule_id", metavar="ID")
def remove(options: Globals, schedule_id: str) -> None:
    """Remove the schedule ID. What it asked and was answered stays in its conversation."""
    book = _book(options.load().config)
    removed = book.read().find(schedule_id)
    book.change(lambda book: book.without(book.find(schedule_id)))
    shape = {"removed": schedule_json(removed)}
    options.report(shape, f"Removed {removed.id}: {printable(removed.when)}.")


@kept_command("pause", command)
@click.argument("schedule_id", metavar="ID")
def pause(options: Globals, schedule_id: str) -> None:
    """Stop the schedule ID until it is resumed."""
    schedule = _change(options, schedule_id, paused=True)
    _report(options, schedule, f"Paused {schedule.id}. 'kept schedule resume {schedule.id}' goes on with it.")


@kept_command("resume", command)
@click.argument("schedule_id", metavar="ID")
def resume(options: Globals, schedule_id: str) -> None:
    """Resume the paused schedule ID. Kept does not make up for what it missed."""
    schedule = _change(options, schedule_id, paused=False, last_due=utc_now(SystemClock(), to_the_second=True))
    _report(options, schedule, f"Resumed {schedule.id}: {_next_text(schedule)}.")


def _book(config: Config) -> Book[ScheduleBook]:
    from kept.sessions.schedules.schedule_book import open_schedules

    return open_schedules(config)


def _change(options: Globals, schedule_id: str, **fields: Any) -> Schedule:
    book = _book(options.load().config)
    changed = book.change(lambda book: book.with_schedule(replace(book.find(schedule_id), **fields)))
    return changed.find(schedule_id)


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    from kept.agent.tools.record_json import to_json

    return {**to_json(schedule), "next": to_json(schedule.find_next(SystemClock().now()))}


def _report(options: Globals, schedule: Schedule, text: str) -> None:
    options.report({"schedule": schedule_json(schedule)}, text)


def _next_text(schedule: Schedule) -> str:
    from kept.sessions.schedules.time_rule import get_zone

    if schedule.paused:
        return "paused"
    if schedule.problem:
        return f"failed: {schedule.problem}"
    time = schedule.find_next(SystemClock().now())
    if time is None:
        return "over"
    local = time.astimezone(get_zone(schedule.timezone))
    return f"{local:%a %Y-%m-%d %H:%M} ({schedule.timezone})"


def is_gateway_running(config: Config) -> bool:
    """Return whether a gateway holds its lease."""
    from kept.storage.open import GATEWAY_LEASE, open_home

    try:
        with open_home(config).lease(GATEWAY_LEASE, wait_s=0.0):
            return False
    except LockBusy:
        return True
