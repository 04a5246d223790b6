"""Proposals to change notes, as plain values: they can be shown, stored, and applied later or never.

A proposal consists of edits of lines. Each edit has a digest of the lines that it replaces, so that a proposal that is
older than its notes changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Literal, get_args

from kept.durable import write_atomic
from kept.limits import text_value
from kept.values import frozen
from kept.workspace.line_edit import LineEdit, digest_of_lines

ProposalKind = Literal["duplicate", "replacement", "merge"]
_VERSION = 1


@frozen
class Proposal:
    """A change of notes that somebody may accept."""

    kind: ProposalKind
    edits: tuple[LineEdit, ...]
    reason: str
    source: str = "words"
    """Name of the model that proposed it, or "words"."""

    @property
    def id(self) -> str:
        """Digest of the edits: the same proposal has the same id."""
        return digest_of_lines(json.dumps([asdict(edit) for edit in self.edits], sort_keys=True))


def proposal_json(proposal: Proposal) -> dict[str, Any]:
    edits = [
        {
            "path": edit.path,
            "startLine": edit.start_line,
            "endLine": edit.end_line,
            "digest": edit.digest,
            "text": edit.text,
            "citation": edit.citation,
        }
        for edit in proposal.edits
    ]
    return {
        "id": proposal.id,
        "kind": proposal.kind,
        "reason": proposal.reason,
        "source": proposal.source,
        "edits": edits,
    }


def parse_proposal(shape: Any) -> Proposal:
    """Return a proposal from its JSON. Raise ValueError for anything else."""
    try:
        edits = tuple(
            LineEdit(
                text_value(edit["path"]),
                _line(edit["startLine"]),
                _line(edit["endLine"]),
                text_value(edit["digest"]),
                text_value(edit["text"]),
            )
            for edit in shape["edits"]
        )
        kind = shape["kind"]
        if kind not in get_args(ProposalKind) or not edits:
            raise ValueError(kind)
        return Proposal(kind, edits, text_value(shape["reason"]), text_value(shape["source"]))
    except (KeyError, TypeError) as exc:
        raise ValueError(str(exc)) from exc


def _line(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r:.40} is not a line")
    return value


def save_proposals(path: str, proposals: Iterable[Proposal]) -> None:
    """Replace the stored list of proposals."""
    shape = {"version": _VERSION, "proposals": [proposal_json(proposal) for proposal in proposals]}
    write_atomic(path, json.dumps(shape, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace"))


def load_proposals(path: str) -> list[Proposal]:
    """Return the stored list. A file that is missing or damaged holds none: they can be found again."""
    try:
        with open(path, encoding="utf-8") as file:
            shape = json.load(file)
        return [parse_proposal(proposal) for proposal in shape["proposals"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
