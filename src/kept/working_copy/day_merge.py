"""Merges two versions of a daily note, entry by entry. Pure.

All entries of both sides stay, in the order of their times. An entry that both sides changed is merged by lines; if
they changed the same lines, it becomes two entries, each with the name of its machine. An entry that one side removed
and the other changed stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from kept.working_copy.day_entries import DayEntry, EntryLog, format_entries, read_entries
from kept.working_copy.passage_merge import MergedText, MergeHosts, Sides, merge_lines


def merge_days(sides: Sides, hosts: MergeHosts) -> MergedText:
    """Return two versions of a daily note as one. Their lines end in '\\n'."""
    was, our, their = map(read_entries, (sides.base, sides.ours, sides.theirs))
    openings = Sides(was.opening, our.opening, their.opening)
    opening = merge_lines(openings.map(lambda text: text + b"\n" if text else b""), hosts)
    entries, conflicts = _merge_entries(was.entries, our.entries, their.entries, hosts)
    merged = EntryLog(opening.data.rstrip(), tuple(entries))
    return MergedText(format_entries(merged), opening.conflicts + conflicts)


def _merge_entries(
    base: Sequence[DayEntry], ours: Sequence[DayEntry], theirs: Sequence[DayEntry], hosts: MergeHosts
) -> tuple[list[DayEntry], int]:
    """Return the entries, and how many of them stand twice. Those of ``theirs`` keep their order: others have them."""
    our_matches, their_matches = _match(base, ours), _match(base, theirs)
    base_of = {at: origin for origin, at in their_matches.items()}
    result: list[DayEntry] = []
    conflicts = 0
    for at, entry in enumerate(theirs):
        origin = base_of.get(at)
        our = None if origin is None else our_matches.get(origin)
        if origin is None or (our is not None and ours[our].text in (entry.text, base[origin].text)):
            result.append(entry)
        elif our is None:
            result += [entry] if entry.text != base[origin].text else []
        else:
            versions = _merge_entry(base[origin], ours[our], entry, hosts)
            conflicts += len(versions) - 1
            result += versions
    present = {entry.text for entry in result}
    origins = {at: origin for origin, at in our_matches.items()}
    for at, entry in enumerate(ours):
        origin = origins.get(at)
        is_changed_only_here = origin is not None and origin not in their_matches and entry.text != base[origin].text
        if (origin is None or is_changed_only_here) and entry.text not in present:
            _insert(result, entry)
    return result, conflicts


def _match(base: Sequence[DayEntry], side: Sequence[DayEntry]) -> dict[int, int]:
    """Return which entry of a side each entry of the base became: one that reads the same, or of the same minute."""
    matches: dict[int, int] = {}
    for field in ("text", "time"):
        taken = set(matches.values())
        free = [at for at in range(len(side)) if at not in taken]
        for origin, old in enumerate(base):
            same = (at for at in free if getattr(side[at], field) == getattr(old, field))
            at = next(same, None) if origin not in matches else None
            if at is not None:
                matches[origin] = at
                free.remove(at)
    return matches


def _merge_entry(base: DayEntry, ours: DayEntry, theirs: DayEntry, hosts: MergeHosts) -> list[DayEntry]:
    if theirs.text == base.text:
        return [ours]
    merged = merge_lines(Sides(base.text, ours.text, theirs.text).map(lambda text: text + b"\n"), hosts)
    if not merged.conflicts:
        return [DayEntry(theirs.time, merged.data.rstrip())]
    return [theirs.marked(hosts.theirs), ours.marked(hosts.ours)]


def _insert(entries: list[DayEntry], entry: DayEntry) -> None:
    """Insert an entry after the last one that is not later."""
    before = (at for at in range(len(entries), 0, -1) if entries[at - 1].time <= entry.time)
    entries.insert(next(before, 0), entry)
