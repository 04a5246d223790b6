"""Rules for when a session is stale, so that the next message starts a new one. Pure."""

from __future__ import annotations

import datetime as dt
from typing import Literal, assert_never

from kept.clock import Clock
from kept.config import ResetOverrideSettings, ResetSettings

Staleness = Literal["idle", "daily"]


def policy_for(reset: ResetSettings, *, channel: str, chat_type: str) -> ResetSettings:
    """Return the policy of a conversation. Its channel overrides its chat type, which overrides the general setting."""
    chosen = _overlay(reset, reset.by_chat_type.get(chat_type))
    return _overlay(chosen, reset.by_channel.get(channel))


def staleness(active: dt.datetime, policy: ResetSettings, clock: Clock) -> Staleness | None:
    """Return why a session is stale whose last message was at ``active``, or None if it is not."""
    now = clock.now()
    match policy.mode:
        case "none":
            return None
        case "idle":
            return "idle" if now - active >= dt.timedelta(minutes=policy.idle_minutes) else None
        case "daily":
            return "daily" if active < _last_boundary(now, policy.daily_hour) else None
        case _:
            assert_never(policy.mode)


def _last_boundary(now: dt.datetime, hour: int) -> dt.datetime:
    """Return the most recent occurrence of the hour, in local time."""
    today = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return today if today <= now else today - dt.timedelta(days=1)


def _overlay(base: ResetSettings, override: ResetOverrideSettings | None) -> ResetSettings:
    if override is None:
        return base
    return ResetSettings(
        mode=override.mode or base.mode,
        idle_minutes=base.idle_minutes if override.idle_minutes is None else override.idle_minutes,
        daily_hour=base.daily_hour if override.daily_hour is None else override.daily_hour,
        by_channel=base.by_channel,
        by_chat_type=base.by_chat_type,
    )
