"""No bytes whatsoever make an importer raise, and what it takes in can be read again."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.sessions.importers import source
from kept.sessions.importers.import_run import import_sessions
from kept.sessions.store import SessionStore
from tests.support.files import write_file
from tests.support.foreign_transcripts import (
    bring_in,
    cc_answer,
    cc_user,
    cx_event,
    cx_item,
    cx_meta,
    lines,
    messages_of,
    pi_answer,
    pi_entry,
    pi_header,
    pi_user,
    say,
)
from tests.support.session_strategies import twist

pytestmark = pytest.mark.slow

FORMATS = ["claude-code", "codex", "openclaw", "pi"]
WELL_FORMED = [
    pi_header(),
    pi_user("a1", None, "Hello"),
    pi_answer("a2", "a1", say("Hi"), {"type": "toolCall", "id": "c", "name": "n", "arguments": {}}),
    pi_entry("message", "a3", "a2", message={"role": "toolResult", "toolCallId": "c", "content": [say("x")]}),
    pi_entry("compaction", "a4", "a3", summary="S", firstKeptEntryId="a2", tokensBefore=5),
    cc_user("u1", None, [{"type": "tool_result", "tool_use_id": "t", "content": [say("x")]}]),
    cc_answer("v1", "u1", say("Hi"), {"type": "image", "source": {"type": "base64", "data": "AA"}}),
    cc_user("u2", "v1", "Hello", isSidechain=True, agentId="g"),
    cc_user("u3", "v1", "S", isCompactSummary=True),
    cx_meta(),
    cx_item("message", role="user", content=[{"type": "input_text", "text": "Hello"}]),
    cx_item("function_call_output", call_id="c", output={"output": "x", "metadata": {"exit_code": 1}}),
    cx_event("token_count", info={"last_token_usage": {"input_tokens": 5}, "total_token_usage": {"total_tokens": 5}}),
]


def import_bytes(format_name, raw):
    """Into a home of its own; twice, because what is here is read again then."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder) / "from" / "x.jsonl", raw)
        with SessionStore.open(home=Path(folder) / "home") as store:
            first = import_sessions(store, format_name, path)
            second = import_sessions(store, format_name, path)
            assert second.count("unchanged") == first.count("imported")
            assert [one.reason for one in first.sessions if one.outcome == "failed"] == []
            for record in store.recent():
                assert record.damaged_lines == 0
                assert not store.load(record.id).damage
        assert path.read_bytes() == raw
        return first


@st.composite
def twisted(draw):
    """Records of the right shape in which something, somewhere, is of any kind at all."""
    records = json.loads(json.dumps(draw(st.lists(st.sampled_from(WELL_FORMED), min_size=1, max_size=5))))
    return twist(draw, records, most=4)


@pytest.mark.parametrize("format_name", FORMATS)
@given(raw=st.binary(max_size=300))
def test_any_bytes(format_name, raw):
    import_bytes(format_name, raw)


@pytest.mark.parametrize("format_name", FORMATS)
@given(records=twisted())
def test_records_with_anything_in_any_place(format_name, records):
    import_bytes(format_name, lines(*records).encode())


@pytest.mark.parametrize("format_name", FORMATS)
@given(records=st.lists(st.sampled_from(WELL_FORMED), max_size=4), cut=st.integers(0, 400), put=st.binary(max_size=5))
def test_lines_with_bytes_in_any_place(format_name, records, cut, put):
    raw = lines(*records).encode()
    import_bytes(format_name, raw[:cut] + put + raw[cut:])


@pytest.mark.parametrize("format_name", FORMATS)
@given(records=twisted(), cut=st.integers(0, 5))
def test_a_source_that_grew_is_here_as_if_it_had_come_whole(format_name, records, cut):
    """Cut between any two lines, and taken in before and after."""

    def ids(store):
        return {one.id: [line.content.id for line in store.iter_lines(one.id)] for one in store.recent()}

    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder) / "x.jsonl", lines(*records[:cut]))
        with SessionStore.open(home=Path(folder) / "grown") as grown:
            import_sessions(grown, format_name, path)
            write_file(path, lines(*records))
            report = import_sessions(grown, format_name, path)
            assert report.count("failed") == 0
            with SessionStore.open(home=Path(folder) / "whole") as whole:
                import_sessions(whole, format_name, path)
                assert ids(grown) == ids(whole)


@pytest.mark.parametrize("format_name", FORMATS)
def test_extremes(format_name):
    deep = "[" * 200 + "]" * 200
    strange = [
        lines(*WELL_FORMED),
        '{"type":"message","id":"z","message":{"role":"user","content":' + "[" * 100_000 + "\n",
        '{"type":"message","id":"z1","message":{"role":"user","content":' + deep + "}}\n",
        '{"type":"unheard-of","id":"z2","x":1e999}\n',
        '{"type":"message","id":"z3","message":{"role":"assistant","content":[],"usage":{"input":'
        + "9" * 4000
        + "}}}\n",
        '{"type":"message","id":"z4","timestamp":"0001-01-01T00:00:00+14:00","message":{"role":"user","content":"x"}}\n',
        '{"type":"message","id":"z5","timestamp":1e300,"message":{"role":"user","content":"\\ud800"}}\n',
        '{"type":"message","id":"' + "z" * 100_000 + '","parentId":"\\ud800"}\n',
        '{"type":"message","id":"loop","parentId":"loop","message":{"role":"user","content":"x"}}\n',
        '{"type":"progress","uuid":"p","parentUuid":"q"}\n{"type":"progress","uuid":"q","parentUuid":"p"}\n',
    ]
    report = import_bytes(format_name, "".join(strange).encode())
    assert report.count("imported") >= 1
    assert len(report.problems) < 30


def test_a_line_of_any_length_is_named_and_passed(home, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MAX_LINE_BYTES", 1000)
    talk = [pi_header(), pi_user("a1", None, "x" * 5000), pi_user("a2", None, "short")]
    path = write_file(tmp_path / "x.jsonl", lines(*talk))
    report = bring_in(home, "pi", path)
    assert [problem.path for problem in report.problems] == [f"{path}:2"]
    assert [one.text for one in messages_of(home, "walk-1")] == ["short"]


def test_a_thousand_damaged_lines_are_not_a_thousand_reports(home, tmp_path):
    path = write_file(tmp_path / "x.jsonl", lines(pi_header(), pi_user("a1", None, "x")) + "{\n" * 1000)
    report = bring_in(home, "pi", path)
    assert len(report.problems) == 21
    assert "980 more" in report.problems[-1].reason


def test_an_id_cannot_lead_out_of_the_folder(home, tmp_path):
    path = write_file(tmp_path / "x.jsonl", lines(pi_header("../../../evil"), pi_user("a1", None, "x")))
    report = bring_in(home, "pi", path)
    assert report.count("imported") == 1
    assert "/" not in report.sessions[0].id
    assert len([*(home / "agents" / "main" / "sessions").iterdir()]) == 1
