"""What came of an import, as a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from kept.records import Problem
from kept.values import frozen

Became = Literal["session", "message", "compaction", "state", "kept as it was", "left out"]
Outcome = Literal["imported", "updated", "unchanged", "failed"]


@frozen
class KindCount:
    """How many records of a kind there were, and what they are now."""

    kind: str
    became: Became
    count: int


@frozen
class SessionOutcome:
    id: str
    source: str
    outcome: Outcome
    messages: int
    """In the source, on all branches."""
    added: int
    """Entries that were written, or would be."""
    kinds: tuple[KindCount, ...]
    reason: str | None = None
    """Why it failed."""


@frozen
class ImportReport:
    format: str
    dry_run: bool
    files: int
    """How many were looked into."""
    sessions: tuple[SessionOutcome, ...]
    ignored: tuple[Problem, ...]
    """Files without a conversation of this format in them."""
    problems: tuple[Problem, ...]
    """What could not be read or was not as it should be. The path of a line ends with ``:NUMBER``."""

    def count(self, outcome: Outcome) -> int:
        return sum(session.outcome == outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """In the sessions that are here now."""
        return sum(session.messages for session in self.sessions if session.outcome != "failed")

    @property
    def kinds(self) -> tuple[KindCount, ...]:
        """Of all sessions together, the most frequent first."""
        total: Counter[tuple[str, Became]] = Counter()
        for session in self.sessions:
            for one in session.kinds:
                total[one.kind, one.became] += one.count
        return count_kinds(total)


def count_kinds(counts: Counter[tuple[str, Became]]) -> tuple[KindCount, ...]:
    in_order: Iterable[tuple[tuple[str, Became], int]] = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(KindCount(kind, became, count) for (kind, became), count in in_order)
