"""Hypothesis strategies for every kind of entry, and a session store with a frozen clock."""

import datetime as dt
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kept.sessions.entries import (
    ROLES,
    Attachment,
    CompactionEntry,
    Entry,
    Message,
    ResetEntry,
    SessionStart,
    StateEntry,
    Text,
    Thinking,
    TokenUsage,
    ToolCall,
    ToolResult,
    whole_ms,
)
from kept.sessions.record import SessionRecord
from kept.sessions.store import SessionStore
from kept.testing import FrozenClock

NOW = dt.datetime(2026, 3, 14, 15, 9, 26, tzinfo=dt.timezone(dt.timedelta(hours=1)))

# Includes lone surrogates and line separators: a message may hold anything.
texts = st.text(st.characters(exclude_categories=()), max_size=40)
names = st.text("abcxyz_é:%", min_size=1, max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
counts = st.integers(0, 10**9)
times = st.datetimes(
    dt.datetime(1990, 1, 1),
    dt.datetime(2100, 1, 1),
    timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-3, minutes=-30)), NOW.tzinfo]),
).map(whole_ms)
blocks = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, st.none() | texts),
    st.builds(ToolCall, texts, texts, objects),
    st.builds(ToolResult, texts, texts, st.none() | texts, st.booleans()),
    st.builds(Attachment, texts, st.none() | texts, st.none() | texts),
)
messages = st.builds(
    Message,
    role=st.sampled_from(ROLES),
    content=st.lists(blocks, max_size=4).map(tuple),
    sender=st.none() | texts,
    model=st.none() | texts,
    usage=st.none() | st.builds(TokenUsage, counts, counts, counts),
    metadata=objects,
)
bodies = st.one_of(
    messages,
    st.builds(
        SessionStart,
        key=texts,
        version=st.integers(1, 9),
        predecessor=st.none() | texts,
        compactions=counts,
        state=objects,
        metadata=objects,
    ),
    st.builds(
        CompactionEntry,
        texts,
        first_kept_id=st.none() | texts,
        tokens_before=st.none() | counts,
        tokens_after=st.none() | counts,
        source=texts,
        receipt=st.none() | objects,
        metadata=objects,
    ),
    st.builds(ResetEntry, texts, st.none() | texts),
    st.builds(StateEntry, texts, values),
)
entries = st.builds(Entry, id=texts, parent_id=st.none() | texts, timestamp=times, body=bodies)


def open_sessions(tmp_path: Path, *, clock: FrozenClock | None = None, **settings: Any) -> SessionStore:
    return SessionStore.open(
        home=tmp_path / "home",
        clock=clock or FrozenClock(NOW),
        settings={f"session.reset.{name}": value for name, value in settings.items()},
    )


def path_of(place: SessionStore | Path, record: SessionRecord) -> Path:
    """Return the file of a transcript, in a home or in that of a store."""
    folder = place.config.paths.folder if isinstance(place, SessionStore) else place / "agents/main"
    return Path(folder) / record.log


def said(store: SessionStore, session_id: str, *, limit: int | None = None) -> list[str]:
    return [message.text for message in store.load(session_id, limit=limit).messages]


def say(store: SessionStore, session_id: str, *texts: str) -> list[Entry]:
    return [store.append(session_id, Message.of("user", text)) for text in texts]


def twist(draw: st.DrawFn, trees: list[Any], *, most: int) -> list[Any]:
    """Replace up to ``most`` values somewhere in the trees by any other value."""
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.sampled_from(trees))
        while at:
            name = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if not isinstance(at[name], dict | list) or not at[name] or draw(st.booleans()):
                at[name] = draw(values)
                break
            at = at[name]
    return trees
