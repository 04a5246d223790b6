"""Merges two versions of a text with the version that both began with, by lines. Pure.

Changes of different lines are both made, also of neighbouring ones: machines append to the same lists. Lines that both
inserted at one place stay, each once. If both changed the same lines, both versions stay, in marks that name their
machines. If one side removed lines that the other changed, the change stays. So no line that somebody wrote is lost.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence

from kept.history.line_changes import LineHunk, overlap, plan_hunks, split_lines
from kept.values import frozen
from kept.workspace.conflict_marks import PassageVersion, format_versions, read_versions

_RULE = b"---"
_ITEMS = (b"- ", b"* ", b"+ ")
_WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]")


@frozen
class Sides:
    """Two versions of a text, and the one that both began with. Without a common beginning, that is empty."""

    base: bytes
    ours: bytes
    theirs: bytes

    def map(self, change: Callable[[bytes], bytes]) -> Sides:
        return Sides(change(self.base), change(self.ours), change(self.theirs))


@frozen
class MergeHosts:
    """Names of the machines whose versions are merged."""

    ours: str
    theirs: str


@frozen
class MergedText:
    data: bytes
    conflicts: int = 0
    """Number of passages of which both versions stay."""


def merge_lines(sides: Sides, hosts: MergeHosts, *, comments: bool = True) -> MergedText:
    """Merge texts of whole lines that end in '\\n'. ``comments`` marks with HTML comments, otherwise with '#'."""
    lines, our_lines, their_lines = map(split_lines, (sides.base, sides.ours, sides.theirs))
    if not lines:
        lines = _common_lines(our_lines, their_lines)
    front = _front_matter_end(lines)
    result: list[bytes] = []
    position = conflicts = 0
    for cluster in _clusters(plan_hunks(lines, our_lines), plan_hunks(lines, their_lines)):
        result += lines[position : cluster.start]
        position = max(position, cluster.end)
        passage, is_conflict = _merge_cluster(lines, cluster, hosts, comments=comments and cluster.start >= front)
        conflicts += is_conflict
        result += passage
    return MergedText(b"".join(result + lines[position:]), conflicts)


@frozen
class _Cluster:
    """Changes of both sides that touch the same lines of the base."""

    start: int
    end: int
    ours: tuple[LineHunk, ...]
    theirs: tuple[LineHunk, ...]


def _clusters(ours: Sequence[LineHunk], theirs: Sequence[LineHunk]) -> Iterator[_Cluster]:
    """Yield the changes in the order of the text, those together that touch the same lines."""
    hunks = sorted(
        [(hunk, True) for hunk in ours] + [(hunk, False) for hunk in theirs],
        key=lambda pair: (pair[0].start, pair[0].end, pair[1]),
    )
    group: list[tuple[LineHunk, bool]] = []
    for hunk, is_ours in hunks:
        if group and not any(is_ours != other_is_ours and _meet(hunk, other) for other, other_is_ours in group):
            yield _cluster_of(group)
            group = []
        group.append((hunk, is_ours))
    if group:
        yield _cluster_of(group)


def _cluster_of(group: Sequence[tuple[LineHunk, bool]]) -> _Cluster:
    return _Cluster(
        min(hunk.start for hunk, _ in group),
        max(hunk.end for hunk, _ in group),
        tuple(hunk for hunk, is_ours in group if is_ours),
        tuple(hunk for hunk, is_ours in group if not is_ours),
    )


def _meet(hunk: LineHunk, other: LineHunk) -> bool:
    is_same_place = hunk.start == hunk.end == other.start == other.end
    return is_same_place or overlap(hunk, other)


def _merge_cluster(
    lines: Sequence[bytes], cluster: _Cluster, hosts: MergeHosts, *, comments: bool
) -> tuple[list[bytes], bool]:
    """Return the lines of a cluster, and whether both versions are in it, in marks."""
    ours = _apply(lines, cluster, cluster.ours)
    theirs = _apply(lines, cluster, cluster.theirs)
    if not cluster.ours or ours == theirs:
        return theirs, False
    if not cluster.theirs:
        return ours, False
    if cluster.start == cluster.end:
        return _union(theirs, ours), False
    if not ours or not theirs:
        return ours or theirs, False
    return _both_versions(theirs, ours, hosts, comments=comments)


def _apply(lines: Sequence[bytes], cluster: _Cluster, hunks: Sequence[LineHunk]) -> list[bytes]:
    result: list[bytes] = []
    position = cluster.start
    for hunk in hunks:
        result += [*lines[position : hunk.start], *hunk.lines]
        position = hunk.end
    return result + list(lines[position : cluster.end])


def _both_versions(
    theirs: list[bytes], ours: list[bytes], hosts: MergeHosts, *, comments: bool
) -> tuple[list[bytes], bool]:
    versions = read_versions(theirs) or [PassageVersion(hosts.theirs, tuple(theirs))]
    known = [version.lines for version in versions]
    more = read_versions(ours) or [PassageVersion(hosts.ours, tuple(ours))]
    more = [version for version in more if version.lines not in known]
    if not more:
        return theirs, False
    return format_versions([*versions, *more], comments=comments), True


def _union(first: Sequence[bytes], second: Sequence[bytes]) -> list[bytes]:
    """Return all lines of both, in the order of each. Lines that both have in the same order stand once."""
    result: list[bytes] = []
    for kind, start, end, other_start, other_end in _align(first, second).get_opcodes():
        result += first[start:end]
        if kind != "equal" and first[start:end] != second[other_start:other_end]:
            result += _continue_list(first[start:end], second[other_start:other_end])
    return result


def _continue_list(above: Sequence[bytes], lines: Sequence[bytes]) -> Sequence[bytes]:
    """Return lines that follow others, without a blank line that would divide a list."""
    begins_alike = above and above[0] == b"\n" and lines and lines[0] == b"\n"
    is_list = begins_alike and len(lines) > 1 and lines[1].startswith(_ITEMS) and above[-1].startswith(_ITEMS)
    return lines[1:] if is_list else lines


def _common_lines(ours: list[bytes], theirs: list[bytes]) -> list[bytes]:
    blocks = _align(theirs, ours).get_matching_blocks()
    return [line for block in blocks for line in theirs[block.a : block.a + block.size]]


def _align(first: Sequence[bytes], second: Sequence[bytes]) -> difflib.SequenceMatcher[bytes | int]:
    """Compare lines with words only: blank lines and rules are alike everywhere, and separate what stands around."""
    return difflib.SequenceMatcher(None, _keys(first, 1), _keys(second, -1), autojunk=False)


def _keys(lines: Sequence[bytes], sign: int) -> list[bytes | int]:
    return [line if _WORD.search(line) else sign * number for number, line in enumerate(lines, 1)]


def _front_matter_end(lines: Sequence[bytes]) -> int:
    """Return the number of lines of the front matter, which is not Markdown."""
    if not lines or lines[0].rstrip() != _RULE:
        return 0
    return next((at for at in range(1, len(lines)) if lines[at].rstrip() == _RULE), 0)
