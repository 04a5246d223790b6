"""Result of an import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from kept.records import Problem
from kept.values import frozen

Became = Literal["session", "message", "compaction", "state", "kept as it was", "left out"]
Outcome = Literal["imported", "updated", "unchanged", "deleted", "failed"]
"""A conversation that the user deleted here is left out: ``deleted``."""


@frozen
class KindCount:
    """Number of records of a kind, and what they were imported as."""

    kind: str
    became: Became
    count: int


@frozen
class SessionOutcome:
    id: str
    source: str
    outcome: Outcome
    messages: int
    """Messages in the source, on all branches."""
    added: int
    """Entries that were written, or would be in a run without ``dry_run``."""
    kinds: tuple[KindCount, ...]
    reason: str | None = None
    """Reason of a failure."""
    title: str | None = None
    """Title of the conversation in the source."""


@frozen
class ForeignFile:
    """A file of another format than the one that was named."""

    path: str
    looks_like: str | None
    """Name of its format, or None if it is none that can be imported."""


@frozen
class ImportReport:
    format: str
    dry_run: bool
    files: int
    """Number of files that were read."""
    sessions: tuple[SessionOutcome, ...]
    ignored: tuple[Problem, ...]
    """Files without a conversation of this format in them."""
    problems: tuple[Problem, ...]
    """Files and lines that could not be read or are damaged. The path of a line ends with ``:NUMBER``."""
    foreign: tuple[ForeignFile, ...] = ()
    """Files of another format. They are ignored."""

    def count(self, outcome: Outcome) -> int:
        return sum(session.outcome == outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """Messages in the sessions that were imported now or before."""
        return sum(session.messages for session in self.sessions if session.outcome not in ("failed", "deleted"))

    @property
    def kinds(self) -> tuple[KindCount, ...]:
        """Kinds of records in all sessions, the most frequent first."""
        total: Counter[tuple[str, Became]] = Counter()
        for session in self.sessions:
            for kind in session.kinds:
                total[kind.kind, kind.became] += kind.count
        return count_kinds(total)


def combine_reports(reports: Sequence[ImportReport]) -> ImportReport:
    """Return one report of several imports of a format, from different folders."""
    return ImportReport(
        format=reports[0].format,
        dry_run=reports[0].dry_run,
        files=sum(report.files for report in reports),
        sessions=tuple(session for report in reports for session in report.sessions),
        ignored=tuple(problem for report in reports for problem in report.ignored),
        problems=tuple(problem for report in reports for problem in report.problems),
        foreign=tuple(file for report in reports for file in report.foreign),
    )


def count_kinds(counts: Counter[tuple[str, Became]]) -> tuple[KindCount, ...]:
    in_order: Iterable[tuple[tuple[str, Became], int]] = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(KindCount(kind, became, count) for (kind, became), count in in_order)
