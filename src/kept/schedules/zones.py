"""Time zones by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from zoneinfo import ZoneInfo

from kept.errors import ScheduleInvalid

_LOCAL_TIME = "/etc/localtime"
_MARK = "zoneinfo/"


def get_zone(name: str) -> ZoneInfo:
    """Return the time zone of a name such as Europe/Berlin. Raise ScheduleInvalid if there is none."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ScheduleInvalid(
            f"There is no time zone '{name[:60]}'.", hint="Name one such as Europe/Berlin, Asia/Bangkok or UTC."
        ) from None


def find_local_zone(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of this machine's time zone. Raise ScheduleInvalid if it has none."""
    names = [environ.get("TZ", "").removeprefix(":")]
    target = os.path.realpath(_LOCAL_TIME)
    if _MARK in target:
        names.append(target.rpartition(_MARK)[2])
    for name in filter(None, names):
        try:
            return get_zone(name).key
        except ScheduleInvalid:
            continue
    if not os.path.exists(_LOCAL_TIME) and os.name == "posix":
        return "UTC"
    raise ScheduleInvalid("The time zone of this machine has no name.", hint="Give one: --timezone Europe/Berlin.")
