"""Messages about tags that no note has."""

from __future__ import annotations

from collections.abc import Iterable

from kept.store.note_tables import NoteTables

_MAX_SHOWN = 3


def explain_unknown_tags(notes: NoteTables, keys: Iterable[str]) -> tuple[str, ...]:
    """Return a message for each tag that no note has, with tags that look like it."""
    unknown = [key for key in keys if not notes.has_tag(key)]
    if not unknown:
        return ()
    known = {key: tag for key, tag, _ in notes.count_tags()}
    return tuple(f"No note has the tag '{key}'.{_suggestion(key, known)}" for key in unknown)


def _suggestion(key: str, known: dict[str, str]) -> str:
    import difflib

    below = [other for other in known if key in other.split("/")]
    near = [*dict.fromkeys([*difflib.get_close_matches(key, known, n=_MAX_SHOWN), *below])][:_MAX_SHOWN]
    names = " or ".join(f"'{known[other]}'" for other in near)
    return f" Did you mean {names}?" if near else ""
