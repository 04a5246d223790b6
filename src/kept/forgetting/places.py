"""Values of a forget: the request, the places that were found, and the plan that a person confirms."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kept.forgetting.needles import Needles
from kept.values import frozen

Kind = Literal["note", "conversation", "import", "session", "record", "history", "proposal"]
KINDS: tuple[Kind, ...] = ("note", "conversation", "import", "session", "history", "proposal", "record")
"""Kinds of places, in the order in which they are shown. An import is a conversation of another program; a record is
in a file of Kept's own, such as the inbox."""
CHOSEN: tuple[Kind, ...] = ("note", "conversation", "import", "session")
"""Kinds that a person can choose from. The others have copies of them."""


@frozen
class ForgetRequest:
    """Request to forget. Exactly one field is set."""

    query: str | None = None
    """Words, or a citation."""
    session: str | None = None
    person: str | None = None
    before_ms: int | None = None


@frozen
class Place:
    """A passage, a transcript line, a whole note or a whole session that is to go."""

    kind: Kind
    path: str
    """As a search cites it."""
    citation: str
    text: str
    """Text to show."""
    digest: str
    """Hash of the exact text, so that a change is noticed."""
    start_line: int = 1
    lines: int = 1
    whole: bool = False
    """The whole file, not some lines of it; for a transcript line, all that it says."""


@frozen
class ForgetPlan:
    """Every place that a forget would change. Nothing has happened yet."""

    request: ForgetRequest
    places: tuple[Place, ...]
    needles: Needles
    """Texts that no file may have afterwards."""
    by_meaning: bool = False
    """The words of the query are nowhere; these places are what a search finds for it."""
    unreachable: tuple[str, ...] = ()
    """Places that name it and that Kept does not change."""
    by_tool: bool = False

    @property
    def token(self) -> str:
        """Confirms exactly this plan: it differs if anything was added or changed since."""
        fields = [[place.kind, place.citation, place.digest, place.whole] for place in self.places]
        data = json.dumps([self.needles.words, sorted(fields)], ensure_ascii=True)
        return hashlib.sha256(data.encode()).hexdigest()[:24]

    @property
    def choices(self) -> tuple[Place, ...]:
        """Places that a person can choose from, in the order in which they are shown."""
        return tuple(place for place in self.places if place.kind in CHOSEN)

    def counts(self) -> dict[str, int]:
        """Return the number of places by kind."""
        counts = Counter(place.kind for place in self.places)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    def select(self, places: Sequence[Place]) -> ForgetPlan:
        """Return a plan for some of the places. Words are not searched for elsewhere then: the rest may keep them."""
        lines = Needles.of_texts([place.text for place in places])
        return replace(self, places=tuple(places), needles=lines)


def digest_of(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:32]
