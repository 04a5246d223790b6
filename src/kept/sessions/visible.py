"""Finds sessions by a reference, among those that a viewer may see. Sessions of others do not exist for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept.errors import SessionAmbiguous, SessionKeyInvalid, SessionNotFound
from kept.sessions.session_key import parse_key

if TYPE_CHECKING:
    from kept.sessions.record import SessionRecord
    from kept.sessions.store import SessionStore
    from kept.visibility import Viewer

_SHOWN_CANDIDATES = 4


def get_visible(sessions: SessionStore, viewer: Viewer | None, reference: str) -> SessionRecord:
    """Return a session by its id, the beginning of its id, its citation or the key of its conversation.

    Raise SessionNotFound with the same words for a session of somebody else and for one that does not exist.
    """
    if viewer is None:
        return sessions.get(reference)
    missing = SessionNotFound(f"There is no session '{reference}'.")
    records = [record for record in sessions.recent() if viewer.sees_key(record.key)]
    for record in records:
        if reference in (record.id, record.citation):
            return record
    if ":" in reference:
        try:
            key = str(parse_key(reference, agent_id=sessions.agent_id))
        except SessionKeyInvalid:
            raise missing from None
        matches = [record for record in records if record.key == key][:1]
    else:
        matches = [record for record in records if reference and record.id.startswith(reference)]
    if not matches:
        raise missing
    if len(matches) > 1:
        ids = ", ".join(record.id for record in matches[:_SHOWN_CANDIDATES])
        raise SessionAmbiguous(f"'{reference}' fits more than one session: {ids}.")
    return matches[0]
