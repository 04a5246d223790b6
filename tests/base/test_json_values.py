"""Frozen values as JSON, and back."""

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.json_values import from_tree, to_tree
from kept.server.tokens import AccessToken
from kept.sessions.echoes import EchoState
from kept.sessions.title import TitleParts
from kept.sessions.transcript import Position, ReadEnd, TranscriptCheckpoint

TOKEN = AccessToken("1", "ci", "0" * 64, ("read",), dt.datetime(2026, 3, 14, tzinfo=dt.UTC), None, "ada", None, None)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.lists(TEXTS, max_size=5).map(tuple), st.booleans(), TEXTS, st.integers(0, 1 << 60))
def test_a_checkpoint_is_read_back_as_it_was_stored(calls, answers, title, offset):
    read, echoes = ReadEnd(1, offset, "3f"), EchoState(calls, answers)
    checkpoint = TranscriptCheckpoint(read, 4, Position(offset, 2), "aa", "key", echoes, titles=TitleParts(title))
    assert TranscriptCheckpoint.from_json(checkpoint.to_json()) == checkpoint
    assert json.loads(checkpoint.to_json())["title"] == title


def test_what_is_not_such_a_value_is_refused():
    tree = to_tree(TOKEN)
    assert from_tree(AccessToken, {**tree, "more": 1}) == TOKEN
    wrong = [
        *({**tree, name: None} for name in ("id", "created", "scopes")),
        *({**tree, name: 5} for name in ("person", "expires", "scopes")),
        {**tree, "scopes": ["root"]},
        {**tree, "created": "2026-03-14T00:00:00"},
        {**tree, "name": "\ud800"},
        {name: value for name, value in tree.items() if name != "person"},
        [],
    ]
    for broken in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            from_tree(AccessToken, broken)
