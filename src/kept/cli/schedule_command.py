"""kept schedule add | list | remove | pause | resume | run"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kept.cli.output import console, echo, json_option, print_json, printable, style, warn
from kept.cli.root import Globals
from kept.clock import SystemClock, new_id
from kept.errors import EmptyNote, ScheduleInvalid

if TYPE_CHECKING:
    from kept.config import Config
    from kept.schedules.schedule_book import Schedule, ScheduleBookFile

_ID_CHARS = 6


@click.group("schedule")
def command() -> None:
    """Ask the agent something at set times.

    The gateway does the asking ('kept gateway') and sends the reply to a conversation. What it missed while it was not
    running is asked once when it starts, unless it is too late.
    """


@command.command("add")
@click.argument("when")
@click.argument("text")
@click.option("--to", metavar="KEY", default="", help="Conversation that gets the reply, such as telegram:5054.")
@click.option("--timezone", metavar="ZONE", help="Time zone, such as Europe/Berlin. Default: that of this machine.")
@json_option
@click.pass_obj
def add(options: Globals, when: str, text: str, to: str, timezone: str | None, as_json: bool) -> None:
    """Ask TEXT at the times that WHEN names, in plain words or in the five fields of cron.

    \b
    kept schedule add "every weekday 8:00" "What is due today?" --to telegram:5054
    kept schedule add "every 2 hours" "Is there news about the storm?" --to telegram:5054
    kept schedule add "tomorrow 9:30" "Remind me to call Ada." --to telegram:5054
    kept schedule add "0 18 * * 5" "Summarise my week."

    Without --to, nobody is sent the reply; 'kept sessions show schedule:ID' shows it. An agent that has nothing to say
    sends nothing.
    """
    from kept.responder.scheduler import target_key
    from kept.schedules.plain_times import parse_rule
    from kept.schedules.schedule_book import MAX_TEXT_CHARS, Schedule
    from kept.schedules.zones import find_local_zone, get_zone

    config = options.load().config
    if not text.strip():
        raise EmptyNote("There is nothing to ask.")
    if len(text) > MAX_TEXT_CHARS:
        raise ScheduleInvalid(f"The text has more than {MAX_TEXT_CHARS:,} characters.", hint="Put it into a note.")
    zone = get_zone(timezone or find_local_zone())
    now = SystemClock().now().astimezone(dt.UTC).replace(microsecond=0)
    parse_rule(when, zone, now=now)
    schedule = Schedule(new_id()[:_ID_CHARS], when, zone.key, text, to, now)
    target_key(to, config.agent_id, own_id=schedule.id)
    _book(config).change(lambda book: book.with_schedule(schedule))
    _report(schedule, as_json)
    if not as_json:
        echo(f"Added {style(schedule.id, fg='cyan')}: {_next_text(schedule)}.")
        _warn_about_target(config, to)


@command.command("list")
@json_option
@click.pass_obj
def list_schedules(options: Globals, as_json: bool) -> None:
    """List the schedules with their next times."""
    from rich.table import Table
    from rich.text import Text

    config = options.load().config
    file = _book(config)
    book = file.read()
    if as_json:
        print_json({"schedules": [schedule_json(schedule) for schedule in book.schedules]})
    elif not book.schedules:
        echo('There are no schedules. Add one: kept schedule add "every weekday 8:00" "What is due today?"')
    else:
        table = Table(box=None, pad_edge=False)
        for name in ("id", "when", "next", "to", "text"):
            table.add_column(name, overflow="fold")
        for schedule in book.schedules:
            cells = (schedule.id, schedule.when, _next_text(schedule), schedule.to or "nobody", schedule.text)
            table.add_row(*(Text(printable(" ".join(cell.split()))) for cell in cells))
        console().print(table)
    for fault in file.faults:
        warn(f"{fault}. 'kept doctor --fix' moves it away.")


@command.command("remove")
@click.argument("schedule_id", metavar="ID")
@json_option
@click.pass_obj
def remove(options: Globals, schedule_id: str, as_json: bool) -> None:
    """Remove the schedule ID. What it asked and was answered stays in its conversation."""
    file = _book(options.load().config)
    removed: list[Schedule] = []

    def change(book: Any) -> Any:
        removed[:] = [book.find(schedule_id)]
        return book.without(removed[0])

    file.change(change)
    if as_json:
        print_json({"removed": schedule_json(removed[0])})
    else:
        echo(f"Removed {removed[0].id}: {printable(removed[0].when)}.")


@command.command("pause")
@click.argument("schedule_id", metavar="ID")
@json_option
@click.pass_obj
def pause(options: Globals, schedule_id: str, as_json: bool) -> None:
    """Stop the schedule ID until it is resumed."""
    schedule = _change(options, schedule_id, paused=True)
    _report(schedule, as_json)
    if not as_json:
        echo(f"Paused {schedule.id}. 'kept schedule resume {schedule.id}' goes on with it.")


@command.command("resume")
@click.argument("schedule_id", metavar="ID")
@json_option
@click.pass_obj
def resume(options: Globals, schedule_id: str, as_json: bool) -> None:
    """Resume the schedule ID, which was paused. What it missed meanwhile is not caught up."""
    now = SystemClock().now().astimezone(dt.UTC).replace(microsecond=0)
    schedule = _change(options, schedule_id, paused=False, last_due=now)
    _report(schedule, as_json)
    if not as_json:
        echo(f"Resumed {schedule.id}: {_next_text(schedule)}.")


@command.command("run")
@click.argument("schedule_id", metavar="ID")
@json_option
@click.pass_obj
def run(options: Globals, schedule_id: str, as_json: bool) -> None:
    """Run the schedule ID now, out of turn: within some seconds, or when a gateway starts."""
    now = SystemClock().now().astimezone(dt.UTC).replace(microsecond=0)
    schedule = _change(options, schedule_id, asked_for=now)
    config = options.load().config
    _report(schedule, as_json)
    if as_json:
        return
    if is_gateway_running(config):
        echo(f"{schedule.id} is asked within {_poll_s():.0f} seconds.")
    else:
        echo(f"No gateway is running. {schedule.id} is asked when one starts: kept gateway")


def _book(config: Config) -> ScheduleBookFile:
    from kept.schedules.schedule_book import ScheduleBookFile

    return ScheduleBookFile(config.paths.schedules)


def _change(options: Globals, schedule_id: str, **fields: Any) -> Schedule:
    changed: list[Schedule] = []

    def change(book: Any) -> Any:
        changed[:] = [replace(book.find(schedule_id), **fields)]
        return book.with_schedule(changed[0])

    _book(options.load().config).change(change)
    return changed[0]


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    from kept.schedules.schedule_book import schedule_fields, time_text

    return {**schedule_fields(schedule), "next": time_text(schedule.find_next(SystemClock().now()))}


def _report(schedule: Schedule, as_json: bool) -> None:
    if as_json:
        print_json({"schedule": schedule_json(schedule)})


def _next_text(schedule: Schedule) -> str:
    from kept.schedules.zones import get_zone

    if schedule.paused:
        return "paused"
    if schedule.problem:
        return f"failed: {schedule.problem}"
    time = schedule.find_next(SystemClock().now())
    if time is None:
        return "over"
    local = time.astimezone(get_zone(schedule.timezone))
    return f"{local:%a %Y-%m-%d %H:%M} ({schedule.timezone})"


def _warn_about_target(config: Config, to: str) -> None:
    if not to:
        return
    channel = to.split(":")[2] if to.startswith("agent:") else to.partition(":")[0]
    if channel == "telegram" and not (config.gateway.telegram.token or config.keys.telegram):
        warn("The Telegram channel is off: there is no token in gateway.telegram.token or TELEGRAM_BOT_TOKEN.")
    if channel == "discord" and not (config.gateway.discord.token or config.keys.discord):
        warn("The Discord channel is off: there is no token in gateway.discord.token or DISCORD_BOT_TOKEN.")
    if not is_gateway_running(config):
        warn("No gateway is running: nothing is asked until one is. Start it with 'kept gateway' or 'kept service'.")


def is_gateway_running(config: Config) -> bool:
    """Return whether a gateway holds its lock."""
    from kept.config.agent_paths import GATEWAY_LOCK
    from kept.durable import claimed

    path = os.path.join(config.home, GATEWAY_LOCK)
    if not os.path.exists(path):
        return False
    with claimed(path) as is_ours:
        return not is_ours


def _poll_s() -> float:
    from kept.responder.scheduler import POLL_S

    return POLL_S
