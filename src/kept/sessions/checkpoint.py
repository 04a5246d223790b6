"""Resuming a transcript that has only grown.

A transcript is only ever appended to, so lines that were read once need not be read again. A reader stores up to where
it has read. The next reader checks that the transcript still has those bytes and continues after them; if it was
changed in any other way, it is read from the beginning. The catalogue keeps a `ReadEnd` per transcript, the index a
`TranscriptCheckpoint`.
"""

from __future__ import annotations

import hashlib
import json

from kept.sessions.transcript import FileState, Position, Transcript
from kept.values import frozen


@frozen
class ReadEnd:
    """Place after the last line that was read, and how to recognise it."""

    inode: int
    offset: int
    tail_hash: int
    """Hash of the last bytes before the offset (`Transcript.tail_hash`)."""

    @classmethod
    def of(cls, transcript: Transcript, inode: int, offset: int) -> ReadEnd:
        return cls(inode, offset, transcript.tail_hash(offset))


def has_only_grown(transcript: Transcript, read: ReadEnd, state: FileState) -> bool:
    """Return whether the transcript is the same file and has the same bytes before the end of what was read.

    Only the last bytes are compared, so that this costs the same for any length. A change further up that keeps the
    length moves nothing: callers notice it by the file's times, if its size is as it was.
    """
    is_same_file = state.inode == read.inode and state.size >= read.offset
    return is_same_file and transcript.tail_hash(read.offset) == read.tail_hash


@frozen
class TranscriptCheckpoint:
    """Progress of the index through a transcript.

    The chunks of the last utterances still change, because the next ones will be their context. So three places are
    kept, in this order::

        resume_at      where to read from next time: some utterances earlier, as context for the lines after final_line
        final_line     chunks up to here are final and stay in the index; later ones are replaced
        read.offset    end of the last line that was read
    """

    read: ReadEnd
    final_line: int
    resume_at: Position
    running_hash: str
    """Hash of all lines before ``resume_at`` (`extend_hash`)."""
    key: str
    """Key of the session. Empty if the first line, which has it, is lost."""

    def to_json(self) -> str:
        read, resume_at = self.read, self.resume_at
        fields = {
            "inode": read.inode,
            "end": read.offset,
            "seam": read.tail_hash,
            "settled": self.final_line,
            "again": {"offset": resume_at.offset, "lines": resume_at.lines},
            "chain": self.running_hash,
            "key": self.key,
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TranscriptCheckpoint | None:
        """Return None for a text that is not a checkpoint: then the transcript is read from the beginning."""
        try:
            fields = json.loads(text)
            return cls(
                ReadEnd(fields["inode"], fields["end"], fields["seam"]),
                final_line=fields["settled"],
                resume_at=Position(fields["again"]["offset"], fields["again"]["lines"]),
                running_hash=fields["chain"],
                key=fields["key"],
            )
        except (ValueError, TypeError, KeyError):
            return None


def extend_hash(running_hash: str, raw: bytes) -> str:
    """Return the hash of all lines up to this one, from the hash of those before it ("" before the first).

    Unlike a plain SHA-256 of the file, its state is a short text, so it can be stored and continued at any line.
    """
    return hashlib.sha256(running_hash.encode() + raw).hexdigest()
