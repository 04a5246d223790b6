"""The filter of a viewer in SQL selects exactly what `Viewer` says that it sees."""

import apsw
from hypothesis import given
from hypothesis import strategies as st

from kept.base.records import Filter
from kept.config import load_config
from kept.index.sqlite.filter_sql import filter_sql
from kept.sessions.people import HOME_CHANNELS, Account, People, thread_id
from kept.sessions.session_key import SessionKey

NAMES = st.sampled_from(["ada", "ada2", "Ada", "a", "a:b", "a%3Ab", "7", "7:3", "-7", "%", "direct", "ada@http", "ü"])
CHANNELS = st.sampled_from(["http", "telegram", "tele", "people", "shared", "terminal", "codex"])
KEYS = st.builds(
    lambda agent, channel, account, kind, name, thread: str(
        SessionKey(agent, channel, account, kind, thread_id(name, thread) if kind == "thread" else name)
    ),
    st.sampled_from(["main", "mai", "main2"]),
    CHANNELS,
    st.sampled_from(["default", "work", "direct", "thread"]),
    st.sampled_from(["direct", "thread", "group", "channel", "cron"]),
    NAMES,
    NAMES,
)
PATHS = st.sampled_from(
    ["MEMORY.md", "memory/x.md", "memory/private/x.md", "Memory/Private/ADA@http/x.md", "memory/privately/ada/x.md"]
    + [f"memory/private/{folder}/x.md" for folder in ("ada", "ada@http", "7@telegram", "-7@telegram-group", "ada2")]
)


Row = tuple[str, str, str | None]


@given(CHANNELS, NAMES, st.booleans(), st.booleans(), st.lists(KEYS, max_size=40), st.lists(PATHS, max_size=10))
def test_sql_and_python_agree_about_what_a_viewer_sees(channel, name, is_group, is_owner, keys, paths):
    people = People(
        load_config(
            home="/nonexistent", environ={}, settings={"session.identity_links": {"ada": ["http:ada", "telegram:7"]}}
        ).config
    )
    channel = "http" if channel in HOME_CHANNELS else channel
    viewer = people.viewer(Account(channel, name, is_group))
    viewer = people.as_owner(viewer) if is_owner else viewer
    rows = [("sessions", "sessions/x.jsonl", key) for key in keys] + [("memory", path, None) for path in paths]
    rows.append(("sessions", "sessions/lost.jsonl", None))
    expected = [
        number
        for number, (source, path, key) in enumerate(rows, 1)
        if (viewer.sees_note(path) if source == "memory" else viewer.sees_key(key))
    ]
    filters = Filter(viewer=viewer)
    assert select_rows(filters, rows) == expected


def select_rows(filters: Filter, rows: list[Row]) -> list[int]:
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE chunks (row INTEGER PRIMARY KEY, source TEXT, path TEXT, session_key TEXT)")
    db.execute("CREATE INDEX by_key ON chunks (session_key) WHERE session_key IS NOT NULL")
    db.executemany("INSERT INTO chunks (source, path, session_key) VALUES (?, ?, ?)", rows)
    where, values = filter_sql(filters)
    return [row for (row,) in db.execute(f"SELECT row FROM chunks c WHERE {where} ORDER BY row", values)]
