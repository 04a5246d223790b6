"""Entries and keys: what is written is what is read, and nothing is lost for not being known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.errors import EntryRefused, SessionKeyInvalid
from kept.sessions.entries import (
    DamagedEntry,
    Entry,
    Message,
    StateEntry,
    Text,
    UnknownBlock,
    UnknownEntry,
    format_entry,
    parse_entry,
)
from kept.sessions.session_key import SessionKey, parse_key
from tests.support.session_strategies import entries, texts

LINE = (
    '{"type":"message","id":"a1","parentId":null,"timestamp":"2026-03-14T15:09:26.535+01:00",'
    '"message":{"role":"user","content":"Grüße"}}'
)


@given(entries)
def test_any_entry_comes_back_as_it_was_written(entry):
    line = format_entry(entry)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_entry(line[:-1]) == entry
    assert format_entry(parse_entry(line[:-1])) == line


def test_a_line_is_readable_by_a_person():
    entry = parse_entry(LINE.encode())
    assert isinstance(entry, Entry)
    assert entry.body == Message("user", (Text("Grüße"),))
    assert format_entry(entry).decode() == LINE + "\n"


@given(st.dictionaries(texts, texts), st.sampled_from(["custom", "model_change", "branch_summary", ""]))
def test_an_unknown_kind_of_entry_is_kept_to_the_byte(fields, kind):
    for line in (
        json.dumps({**fields, "type": kind}).encode(),
        b'  {"type" :\t"' + kind.encode() + b'", "id": 7,"x":1.0e5 } ',
    ):
        entry = parse_entry(line)
        assert isinstance(entry, UnknownEntry)
        assert entry.type == kind
        assert format_entry(entry) == line + b"\n"


def test_fields_that_a_later_version_has_added_are_kept():
    entry = parse_entry(LINE.replace('"parentId"', '"mood":{"a":[1]},"parentId"').encode())
    assert isinstance(entry, Entry)
    assert entry.extra == {"mood": {"a": [1]}}
    assert parse_entry(format_entry(entry)[:-1]) == entry


def test_a_part_of_a_message_that_is_not_known_is_kept():
    entry = parse_entry(LINE.replace('"Grüße"', '[{"type":"video","url":"x"}]').encode())
    assert isinstance(entry, Entry)
    assert isinstance(entry.body, Message)
    assert entry.body.content == (UnknownBlock({"type": "video", "url": "x"}),)
    assert parse_entry(format_entry(entry)[:-1]) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty"),
        (b"\xff{}", "UTF-8"),
        (b"hello", "JSON"),
        (b'{"type":"message"', "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"\0\0\0\0", "JSON"),
        (b'{"type":"state","name":"x","value":NaN}', "JSON"),
        (b"[1]", "object"),
        (b"{}", "type"),
        (b'{"type":1}', "type"),
        (b'{"type":"message"}', "'id'"),
        (b'{"type":"message","id":"a"}', "timestamp"),
        (b'{"type":"message","id":"a","timestamp":"yesterday"}', "not a time"),
        (b'{"type":"message","id":"a","timestamp":"2026-03-14T15:09:26"}', "offset"),
        (LINE.replace('"user"', '"cat"').encode(), "role"),
        (LINE.replace('"Grüße"', "7").encode(), "content"),
        (LINE.replace('"Grüße"', "[7]").encode(), "content"),
        (LINE.replace('"a1"', "true").encode(), "'id'"),
    ],
)
def test_a_damaged_line_says_what_is_wrong_with_it(line, reason):
    with pytest.raises(DamagedEntry, match=reason):
        parse_entry(line)


@given(st.binary(max_size=60))
def test_no_line_makes_the_parser_fail_in_another_way(line):
    try:
        parse_entry(line)
    except DamagedEntry:
        pass


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", {"a": object()}])
def test_what_json_cannot_say_is_refused(value):
    entry = parse_entry(LINE.encode())
    assert isinstance(entry, Entry)
    with pytest.raises(EntryRefused):
        format_entry(Entry("a", None, entry.timestamp, StateEntry("x", value)))


parts = texts.filter(bool)


@given(parts, parts, parts, parts, parts)
def test_any_key_round_trips(agent, channel, account, chat_type, user):
    key = SessionKey(agent, channel, account, chat_type, user)
    assert parse_key(str(key), agent_id="other") == key
    assert str(key).count(":") == 5


def test_the_short_form_is_expanded():
    assert str(parse_key("telegram:5054", agent_id="main")) == "agent:main:telegram:default:direct:5054"
    assert parse_key("matrix:@ada:example.org", agent_id="main").user_id == "@ada:example.org"


@pytest.mark.parametrize("text", ["", "telegram", "telegram:", ":5054", "agent:main:::direct:x"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(SessionKeyInvalid):
        parse_key(text, agent_id="main")
