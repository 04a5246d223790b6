"""Changes of lines of notes: made if the lines still read as the caller saw them, proposed, or removed for good."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

from kept.digest import digest_bytes
from kept.durable import write_atomic
from kept.errors import CitationMismatch, KeptError, NoteTooLarge, PathRefused
from kept.limits import text_value
from kept.records import cite
from kept.values import frozen
from kept.workspace.change_recorder import ChangeRecorder, recording
from kept.workspace.notes import LOCK_WAIT_S
from kept.workspace.opened import NoteText, OpenWorkspace, encoding_of, require_utf8
from kept.workspace.workspace import Workspace, require_tool_may_write, writing_to

DIGEST_CHARS = 8
_RAW_LINE = rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z"


@frozen
class LineEdit:
    """Lines of a note, counted from 1, and the text that takes their place. An empty text removes them."""

    path: str
    start_line: int
    end_line: int
    digest: str
    """Digest of the lines as they were seen, of `digest_of_lines`."""
    text: str

    @property
    def citation(self) -> str:
        return cite(self.path, self.start_line, self.end_line)


def digest_of_lines(text: str) -> str:
    """Return a short digest of lines, to tell whether they have changed."""
    return digest_bytes(text.encode("utf-8", "surrogatepass"))[:DIGEST_CHARS]


def apply_edits(
    workspace: Workspace,
    edits: Sequence[LineEdit],
    *,
    max_bytes: int,
    by_tool: bool = False,
    recorder: ChangeRecorder | None = None,
) -> None:
    """Make all edits, each note in one atomic write. Raise CitationMismatch, and change nothing, if lines differ."""
    with writing_to(workspace, wait_s=LOCK_WAIT_S):
        apply_locked(workspace, edits, max_bytes=max_bytes, by_tool=by_tool, recorder=recorder)


def apply_locked(
    workspace: Workspace,
    edits: Sequence[LineEdit],
    *,
    max_bytes: int,
    by_tool: bool = False,
    recorder: ChangeRecorder | None = None,
) -> None:
    """Make edits. The caller holds the lock of the workspace."""
    with OpenWorkspace(workspace) as opened:
        changed = []
        for path in dict.fromkeys(edit.path for edit in edits):
            absolute = require_editable(workspace, path, by_tool=by_tool)
            note = opened.read(absolute, max_bytes=max_bytes)
            data = _edited(note, path, [edit for edit in edits if edit.path == path])
            if len(data) > max_bytes:
                raise NoteTooLarge(f"{path}: with this it would have more than the limit of {max_bytes:,} bytes.")
            changed.append((absolute, note.raw, data))
        for absolute, before, data in changed:
            with recording(recorder, workspace.cite(absolute), before, data, kind="edit"):
                write_atomic(absolute, data, dir_fd=opened.folder_of(absolute))


def require_editable(workspace: Workspace, path: str, *, by_tool: bool) -> str:
    """Return the absolute path of a note. Raise PathRefused if it may not be written."""
    absolute = workspace.locate(path)
    workspace.require_own(absolute, path)
    if by_tool:
        require_tool_may_write(workspace, absolute, path)
    return absolute


def _edited(note: NoteText, path: str, edits: Sequence[LineEdit]) -> bytes:
    require_utf8(note.raw, path)
    lines, raw = note.text.split("\n"), re.findall(_RAW_LINE, note.raw)
    ordered = sorted(edits, key=lambda edit: edit.start_line)
    for before, edit in zip([None, *ordered], ordered, strict=False):
        is_apart = before is None or before.end_line < edit.start_line
        read = "\n".join(lines[edit.start_line - 1 : edit.end_line])
        if not is_apart or edit.end_line > len(raw) or digest_of_lines(read) != edit.digest:
            raise CitationMismatch(f"{edit.citation} has changed since it was read, so nothing was written.")
    for edit in reversed(ordered):
        raw[edit.start_line - 1 : edit.end_line] = [_new_lines(edit, raw[edit.end_line - 1])]
    return b"".join(raw)


def _new_lines(edit: LineEdit, last: bytes) -> bytes:
    """Return the text with the line ends of the lines that it replaces."""
    if not edit.text:
        return b""
    end = next((end for end in (b"\r\n", b"\n", b"\r") if last.endswith(end)), b"")
    return edit.text.encode().replace(b"\n", end or b"\n") + end


def edits_fit(workspace: Workspace, edits: Sequence[LineEdit], *, max_bytes: int) -> bool:
    """Return whether the lines of all edits still read as they were seen."""
    try:
        with OpenWorkspace(workspace) as opened:
            for path in dict.fromkeys(edit.path for edit in edits):
                note = opened.read(workspace.locate(path), max_bytes=max_bytes)
                _edited(note, path, [edit for edit in edits if edit.path == path])
    except KeptError:
        return False
    return True


ProposalKind = Literal["duplicate", "replacement", "merge"]
# proposals, as plain values: they can be shown, stored, and applied later or never

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


# removing lines, in whatever encoding and with whatever line ends a note has

_LINE = r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z"


def remove_lines(raw: bytes, ranges: Iterable[tuple[int, int]], path: str) -> bytes:
    """Return a note without lines, given as first and last of each range, counted from 1.

    Of two blank lines that would meet, the second goes too. Raise PathRefused for a note that cannot be read and
    written back unchanged.
    """
    mark, codec = encoding_of(raw)
    errors = "surrogateescape" if codec == "utf-8" else "strict"
    try:
        lines = re.findall(_LINE, raw[len(mark) :].decode(codec, errors))
    except UnicodeError:
        raise PathRefused(f"{path}: cannot be read as {codec}.", hint="Change it with an editor.") from None
    dropped: set[int] = set()
    for first, last in ranges:
        dropped.update(range(first, last + 1))
        before, after = first - 1, last + 1
        is_blank_before = before < 1 or not lines[before - 1].strip()
        if is_blank_before and after <= len(lines) and not lines[after - 1].strip():
            dropped.add(after)
    remaining = "".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    return mark + remaining.encode(codec, errors)
