"""Exports that no service has written: archives that are refused, and JSON with anything in any place."""

import json
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kept.sessions.importers.import_run import import_sessions
from kept.sessions.importers.source import ExportRefused, iter_elements
from kept.sessions.store import SessionStore
from tests.support.chat_exports import claude_talk, gpt_conversation, gpt_node, gpt_talk, write_zip
from tests.support.files import write_file
from tests.support.foreign_transcripts import bring_in
from tests.support.session_strategies import twist

SERVICES = ["chatgpt", "claude-ai"]
WELL_FORMED = [
    gpt_talk(),
    gpt_conversation(
        gpt_node("u1", "sys", content={"content_type": "multimodal_text", "parts": [{"content_type": "x"}, "Hi"]}),
        gpt_node("a1", "u1", "assistant", '{"query": "x"}', recipient="web"),
        gpt_node("a2", "u1", "tool", content={"content_type": "tether_quote", "text": "x"}),
        conversation_id="gpt-2",
    ),
    claude_talk(),
    claude_talk("cl-2"),
]


def test_a_zip_bomb_is_refused_before_it_is_read(home, tmp_path):
    path = write_zip(tmp_path / "x.zip", {"conversations.json": b"[" + b" " * 60_000_000})
    assert path.stat().st_size < 100_000
    assert "like a zip bomb" in bring_in(home, "chatgpt", path).problems[0].reason


def test_many_parts_cannot_add_up_to_more_than_a_disk(home, tmp_path):
    path = write_zip(tmp_path / "x.zip", {"conversations.json": [gpt_talk()]}, zipfile.ZIP_STORED)
    raw = bytearray(path.read_bytes())
    entry = raw.rindex(b"PK\x01\x02")
    for offset in (entry + 20, entry + 24):  # sizes in the directory of the archive: packed, unpacked
        raw[offset : offset + 4] = (0xFFFF_FFF0).to_bytes(4, "little")
    path.write_bytes(raw)
    report = bring_in(home, "chatgpt", path)
    assert report.count("failed") == 0
    assert report.problems


def test_an_archive_with_a_password_is_refused(home, tmp_path):
    path = write_zip(tmp_path / "x.zip", {"conversations.json": [gpt_talk()]})
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    assert "has a password; unpack it" in bring_in(home, "chatgpt", path).problems[0].reason


def test_a_damaged_archive_is_one_line(home, tmp_path):
    whole = write_zip(
        tmp_path / "x.zip", {"conversations.json": [gpt_talk(f"gpt-{n}") for n in range(50)]}
    ).read_bytes()
    cut = write_file(tmp_path / "cut.zip", whole[:-40])
    assert "is a damaged zip file" in bring_in(home, "chatgpt", cut).problems[0].reason
    flipped = write_file(tmp_path / "flipped.zip", whole[:300] + b"\0" * 30 + whole[330:])
    report = bring_in(home, "chatgpt", flipped)
    assert "conversations.json: is damaged" in report.problems[0].reason


def test_a_folder_with_one_bad_archive_still_gives_the_others(home, tmp_path):
    write_zip(tmp_path / "from" / "good.zip", {"conversations.json": [gpt_talk()]})
    write_zip(tmp_path / "from" / "bad.zip", {"conversations.json": b"[" + b" " * 60_000_000})
    write_zip(tmp_path / "from" / "photos.zip", {"a.jpg": b"x"})
    report = bring_in(home, "chatgpt", tmp_path / "from")
    assert [session.id for session in report.sessions] == ["gpt-1"]
    assert [problem.path for problem in report.problems] == [str(tmp_path / "from" / "bad.zip")]


def test_utf16_is_reported(home, tmp_path):
    path = write_file(tmp_path / "conversations.json", json.dumps([gpt_talk()]).encode("utf-16"))
    assert "is damaged ('utf-8' codec" in bring_in(home, "chatgpt", path).problems[0].reason


def import_raw(service, raw):
    """Into a home of its own; twice, because what is here is read again then."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder) / "conversations.json", raw)
        with SessionStore.open(home=Path(folder) / "home") as store:
            first = import_sessions(store, service, path)
            second = import_sessions(store, service, path)
            assert [session.reason for session in (*first.sessions, *second.sessions) if session.reason] == []
            assert second.count("imported") == 0
            for record in store.recent():
                assert record.damaged_lines == 0
                assert not store.load(record.id).damage


@st.composite
def twisted(draw):
    """Conversations in which something, somewhere, is of any kind at all."""
    tree = json.loads(json.dumps(draw(st.lists(st.sampled_from(WELL_FORMED), min_size=1, max_size=3))))
    return twist(draw, tree, most=5)


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@settings(max_examples=50)
@given(tree=twisted())
def test_conversations_with_anything_in_any_place(service, tree):
    import_raw(service, json.dumps(tree).encode())


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@settings(max_examples=50)
@given(raw=st.binary(max_size=200), start=st.sampled_from([b"", b"[", b"[{", json.dumps(WELL_FORMED).encode()]))
def test_any_bytes(service, raw, start):
    assume(not (start + raw).startswith(b"PK"))  # a damaged zip file that was named is an error
    import_raw(service, start + raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    trees=st.lists(st.dictionaries(st.text(), json_values) | st.lists(json_values), max_size=6),
    size=st.integers(1, 40),
    indent=st.sampled_from([None, 1]),
)
def test_elements_are_found_wherever_the_parts_of_a_document_end(trees, size, indent):
    raw = json.dumps(trees, ensure_ascii=False, indent=indent).encode()
    parts = iter([raw[at : at + size] for at in range(0, len(raw), size)])
    elements = [*iter_elements(lambda _: next(parts, b""), max_chars=10**6)]
    assert [tree for tree, _ in elements] == [json.loads(text) for _, text in elements] == trees


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'[{"a": 1}, {"b": ', b"[{} {]", b"", b"[" + b"x" * 3_000])
def test_a_damaged_document_is_read_to_the_damage_and_no_further(raw):
    parts = iter([raw])
    with pytest.raises(ExportRefused):
        [*iter_elements(lambda _: next(parts, b""), max_chars=1000)]


def test_a_large_document_needs_the_memory_of_a_part_of_it():
    element = json.dumps({"text": "x" * 20_000, "list": [{"a": [1, {}]}] * 50}).encode() + b","
    parts = iter([b"[", *([element] * 2000), b"{}]"])
    tracemalloc.start()
    try:
        count = sum(1 for _ in iter_elements(lambda _: next(parts, b""), max_chars=10**6))
        assert (count, tracemalloc.get_traced_memory()[1] < 1_000_000) == (2001, True)
    finally:
        tracemalloc.stop()
