"""Plan of a forget: the places, the plan that a person confirms, and the order to remove them.

The journal is a document of the agent that keeps an order until all of it is done. It is written before the first
change. It has the words in clear, because a run that finishes the work after a crash needs them. It is overwritten and
removed at the end, and `kept doctor` reports one that was left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from kept.base.digest import digest_bytes
from kept.base.json_values import from_tree, to_tree
from kept.base.limits import clip, one_line, read_object, utf8_safe_tree
from kept.base.values import frozen
from kept.config.agent_config import FORGETTING
from kept.errors import DocumentNotFound, ForgetChanged, ForgetFailed, UsageError
from kept.forgetting.needles import Needles
from kept.storage.contract import Erase, Storage, Write

Kind = Literal["note", "conversation", "session", "history", "proposal", "schedule", "inbox", "record"]
"""Kind of a place. A record is in another file of Kept's own that was set aside."""
TITLES: dict[str, str] = {
    "note": "Notes",
    "conversation": "Conversations",
    "session": "Whole conversations",
    "history": "Old versions of notes",
    "proposal": "Proposals",
    "schedule": "Schedules",
    "inbox": "Messages in the inbox",
    "record": "Other files of Kept",
}
"""Kinds in the order in which they are counted."""
PERHAPS = "Perhaps also meant"


@frozen
class Place:
    """A passage, a transcript line, a whole note or a whole session that is to go."""

    kind: Kind
    path: str
    """As a search cites it; for a schedule its id, for messages in the inbox the key of their conversation."""
    citation: str
    text: str
    """Text to show."""
    digest: str
    """Hash of the exact text, so that a change is noticed."""
    start_line: int = 1
    lines: int = 1
    whole: bool = False
    """The whole file, not some lines of it; for a transcript line, all that it says."""
    copies: int = 1
    """How often the note has these lines."""
    new: str = ""
    """Text that takes the place of the lines: a list without one of its names."""
    is_property: bool = False
    """Lines of the front matter."""
    key: str = ""
    """Key of the conversation that it is in: its messages in the inbox go along."""

    def describe(self, chars: int) -> str:
        """Return what goes, in one line: the text, and what it becomes."""
        whole = "the whole note: " if self.whole and self.kind == "note" else ""
        new = f" → {clip(one_line(self.new), chars)}" if self.new else ""
        return f"{whole}{clip(one_line(self.text), chars)}{new}"

    @property
    def said(self) -> str:
        """Return the text that goes, as far as it is known: of a transcript line, without its time and speaker."""
        if self.new or self.kind in ("session", "history", "inbox", "record"):
            return ""
        return self.text.partition(": ")[2] if self.path.startswith("sessions/") else self.text


@frozen
class ForgetPlan:
    """Every place that a forget would change, and nothing else changes. Nothing has happened yet."""

    request: str
    """What is forgotten, without its words: query, citation, session, person or before."""
    places: tuple[Place, ...]
    """Places that have exactly what is to be forgotten."""
    needles: Needles
    """Texts that no file may have afterwards, except in places that were not chosen."""
    unreachable: tuple[str, ...] = ()
    """Places that name it and that Kept does not change."""
    by_tool: bool = False
    candidates: tuple[Place, ...] = ()
    """Places that may be meant too, such as other copies of a cited line. They go only if they are chosen."""
    asked: tuple[Place, ...] = ()
    """Records of the request itself, which go if all places do."""
    kept: tuple[Place, ...] = ()
    """Places that were shown and not chosen."""
    is_partial: bool = False
    """True if the words themselves may stay, because some of their places were not chosen."""

    @property
    def token(self) -> str:
        """Confirms exactly this plan: it differs if anything was added or changed since."""
        fields = [[place.kind, place.citation, place.digest, place.whole, place.new] for place in self.options]
        data = json.dumps([self.needles.words, sorted(fields)], ensure_ascii=True)
        return digest_bytes(data.encode())[:24]

    def require_token(self, token: str) -> None:
        """Raise ForgetChanged if a token does not confirm this plan."""
        if self.token != token:
            raise ForgetChanged("The places have changed since they were shown, or the token is not theirs.")

    @property
    def options(self) -> tuple[Place, ...]:
        """Return the places and the candidates, as they are numbered."""
        return (*self.places, *self.candidates)

    def groups(self) -> list[tuple[str, list[tuple[int, Place]]]]:
        """Return the numbered places by kind, each with a title, and then the candidates."""
        titles = [*(TITLES[place.kind] for place in self.places), *[PERHAPS] * len(self.candidates)]
        numbered = zip(titles, enumerate(self.options, 1), strict=True)
        return [(title, [pair for _, pair in group]) for title, group in groupby(numbered, key=lambda item: item[0])]

    @property
    def absence(self) -> str:
        """Return why there is nothing to forget."""
        if self.request == "before":
            return "no conversation and no daily note is from before that time"
        return "no note and no conversation has it. Search for it, and forget the lines that a result cites"

    def counts(self) -> dict[str, int]:
        """Return the number of places by kind."""
        counts = Counter[str](place.kind for place in self.places)
        return {kind: counts[kind] for kind in TITLES if counts[kind]}

    def choose(self, answer: str) -> ForgetPlan:
        """Return the plan for an answer: numbers such as '1,3', 'none', or 'all' for all places, or for all candidates
        if there are only these. Raise UsageError for anything else."""
        word, options = answer.strip().lower(), self.options
        if word == "all":
            return self.select(self.places or self.candidates)
        numbers = [] if word == "none" else re.split(r"[\s,]+", word.strip(", "))
        if not all(number.isdecimal() and 0 < int(number) <= len(options) for number in numbers):
            hint = f"Answer with numbers from 1 to {len(options)} such as 1,3, with 'all' or with 'none'."
            raise UsageError(f"'{clip(answer, 40)}' names no places.", hint=hint)
        return self.select([options[int(number) - 1] for number in numbers])

    def select(self, places: Sequence[Place]) -> ForgetPlan:
        """Return a plan for some of the places and candidates. The others are left as they are."""
        chosen = tuple(place for place in self.options if place in places)
        others = tuple(place for place in self.options if place not in places)
        if chosen == self.places:
            return replace(self, candidates=(), kept=(*self.kept, *others))
        is_partial = not self.places or any(place in self.places for place in others)
        lines = self.needles.lines if any(place.kind == "session" for place in chosen) else ()
        words = self.needles.words if self.places else ()
        needles = Needles.of_texts([*lines, *(place.said for place in chosen)], words)
        asked = () if is_partial else self.asked
        return replace(
            self, places=chosen, needles=needles, candidates=(), asked=asked, kept=others, is_partial=is_partial
        )


def digest_of(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return digest_bytes(data)[:32]


# the order, and its journal


@frozen
class ForgetOrder:
    """A plan that is being carried out."""

    id: str
    workspace: str
    """Folder of the notes. The work is finished only there: nobody has agreed to lose notes of another folder."""
    plan: ForgetPlan
    salt: str = ""
    sha256: str = ""
    """Salted hash of what is removed."""
    scope: str | None = None
    """Folder of the project or of the person that it is forgotten for, if only that part of the memory was searched."""
    done: tuple[str, ...] = ()
    """Steps that are done."""

    def of_kind(self, *kinds: Kind) -> list[Place]:
        return [place for place in (*self.plan.places, *self.plan.asked) if place.kind in kinds]

    def paths(self, *kinds: Kind) -> list[str]:
        return sorted({place.path for place in self.of_kind(*kinds)})


@dataclass
class Outcome:
    """What could not be removed."""

    changed: list[str] = field(default_factory=list)
    """Citations of places that changed since they were shown, and were left alone."""
    refused: list[str] = field(default_factory=list)
    """Reasons that stay, such as a note that cannot be written back unchanged."""
    missed: list[str] = field(default_factory=list)
    """Reasons why a step has to be done again."""


def write_journal(agent: Storage, order: ForgetOrder) -> None:
    """Write what is to be done, and what is done. Texts of places stay out of it as far as they can."""
    tree = utf8_safe_tree(to_tree(order))
    for place in (place for name in ("places", "asked", "kept") for place in tree["plan"].get(name, ())):
        place["text"] = ""
    agent.commit([Write(FORGETTING, json.dumps(tree).encode() + b"\n", erase=True)])


def read_journal(agent: Storage) -> ForgetOrder | None:
    """Return the forget that is under way or was interrupted, or None. Raise ForgetFailed if it cannot be read."""
    try:
        data = agent.documents.read(FORGETTING).data
    except DocumentNotFound:
        return None
    if data.startswith(b"\0"):  # everything was done, and the journal was being overwritten
        agent.commit([Erase(FORGETTING)])
        return None
    try:
        return from_tree(ForgetOrder, read_object(data))
    except ValueError as exc:
        raise ForgetFailed(
            f"{FORGETTING}: the journal of a forget that was interrupted cannot be read.",
            hint="Forget the same again, then delete that file in the agent's folder.",
        ) from exc
