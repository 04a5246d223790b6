"""How dates are written where the user lives: the first day of the week, and whether 3/4 is March or April."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kept.values import frozen

# Territories as in Unicode's CLDR; everywhere else a week begins on Monday.
_SUNDAY_FIRST = frozenset(
    """
    AG AS BD BR BS BT BW BZ CA CO DM DO ET GT GU HK HN ID IL IN JM JP KE KH KR LA MH MM MO MT MX MZ NI NP PA PE PH PK PR
    PT PY SA SG SV TH TT TW UM US VE VI WS YE ZA ZW
    """.split()
)
_SATURDAY_FIRST = frozenset("AE AF BH DJ DZ EG IQ IR JO KW LY OM QA SD SY".split())
_MONTH_FIRST = frozenset("AS BZ FM GU MH PH PR PW UM US VI".split())
_MONDAY, _SATURDAY, _SUNDAY = 0, 5, 6


@frozen
class DateLocale:
    """Conventions of a territory."""

    first_weekday: int = _MONDAY
    """As `date.weekday` counts: 0 is Monday, 6 is Sunday."""
    month_first: bool | None = None
    """True if 3/4/2024 is in March, False if it is in April, None if the locale names no territory."""


def current_locale(env: Mapping[str, str] = os.environ) -> DateLocale:
    """Return the conventions that LC_ALL, LC_TIME or LANG name, in this order. `C` and `en` name none."""
    name = next((value for key in ("LC_ALL", "LC_TIME", "LANG") if (value := env.get(key))), "")
    territory = name.partition(".")[0].partition("@")[0].replace("-", "_").rpartition("_")[2].upper()
    if len(territory) != 2 or "_" not in name.replace("-", "_"):
        return DateLocale()
    first = _SUNDAY if territory in _SUNDAY_FIRST else _SATURDAY if territory in _SATURDAY_FIRST else _MONDAY
    return DateLocale(first, territory in _MONTH_FIRST)
