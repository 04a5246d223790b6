"""Messages about tags that no note has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.records import Filter

if TYPE_CHECKING:
    from kept.store.generation import Generation

_MAX_SHOWN = 3


def explain_unknown_tags(live: Generation, filters: Filter) -> tuple[str, ...]:
    """Return a message for each tag of a filter that no note has, with tags that look like it. Tags of projects that
    the filter leaves out are not named."""
    known = {key: tag for key, tag, _ in live.count_tags(filters)}
    unknown = [key for key in filters.tags if key not in known]
    return tuple(f"No note has the tag '{key}'.{_suggestion(key, known)}" for key in unknown)


def _suggestion(key: str, known: dict[str, str]) -> str:
    import difflib

    below = [other for other in known if key in other.split("/")]
    near = [*dict.fromkeys([*difflib.get_close_matches(key, known, n=_MAX_SHOWN), *below])][:_MAX_SHOWN]
    names = " or ".join(f"'{known[other]}'" for other in near)
    return f" Did you mean {names}?" if near else ""
