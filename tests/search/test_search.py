"""The hits of a search, their order, and its messages."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kept import Memory
from kept.errors import EmptyQuery, UsageError
from kept.testing import FrozenClock
from tests.support.workspaces import open_memory, paths, write_note


@pytest.fixture
def notes(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "MEMORY.md", "# Memory\n\n- Ada drinks tea.\n- The staging database listens on port 5433.\n")
    write_note(workspace, "memory/2026-02-13.md", "# Backups\n\nBackups run nightly at two with restic.\n")
    write_note(
        workspace,
        "memory/garden.md",
        "# Garden\n\nTomatoes need water every morning.\n\n# Shed\n\nThe key hangs inside.\n",
    )
    return workspace


@pytest.fixture
def local(tmp_path, notes):
    with Memory.open(notes, home=tmp_path / "home") as memory:
        yield memory


NASTY = [
    '"', '""', '"unbalanced', "AND", "OR NOT NEAR", "NEAR(a b, 3)", "*", "a*", "^start", "text:tea",
    "{text context}: tea", "(((", "-- DROP TABLE chunks;", "\0", "tea\0coffee", "🚀", "👨‍👩‍👧‍👦 family", "x" * 10_000,
    "tea " * 2_500, "ชา " * 3_000, "北京大学" * 2_500, "é́́́", "\ud800", "%s %d {0}", "\\", "'; --", "𝕋𝕖𝕒",
]  # fmt: skip


def test_any_string_is_a_valid_query(local):
    for query in NASTY:
        if query.strip("\0 "):
            assert_nothing_failed(local.search(query))
        else:
            with pytest.raises(EmptyQuery):
                local.search(query)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.text(min_size=1, max_size=60))
def test_no_text_at_all_breaks_a_search(local, query):
    try:
        result = local.search(query)
    except EmptyQuery:
        assert not query.strip() or not query.isprintable()
    else:
        assert_nothing_failed(result)


def assert_nothing_failed(result):
    """A text in a script that the notes do not use may get a hint."""
    assert all("kept models pull" in reason for reason in result.degraded)


@pytest.mark.parametrize(
    ("note", "word"),
    [
        ("ฉันชอบกินข้าวผัดกุ้งมากที่สุด", "กุ้ง"),
        ("我在北京大学学习计算机科学。", "大学"),
        ("我在北京大学学习计算机科学。", "学"),
        ("東京のお客様は抹茶クロワッサンを注文します。", "抹茶"),
        ("서울대학교에서 컴퓨터공학을 공부했습니다.", "대학교"),
        ("ខ្ញុំចូលចិត្តផឹកកាហ្វេ", "កាហ្វេ"),
    ],
)
@pytest.mark.parametrize("provider", ["local", "none"])
def test_a_word_inside_an_unspaced_sentence_is_found(tmp_path, note, word, provider):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/target.md", f"# Note\n\n{note}\n")
    write_note(workspace, "memory/other.md", "# Other\n\nวันนี้อากาศดี 天气很好 良い天気です 날씨가 좋다\n")
    settings = {"memory_search.provider": provider}
    with Memory.open(workspace, home=tmp_path / "home", settings=settings) as memory:
        assert paths(memory.search(word))[:1] == ["memory/target.md"]


def test_an_edit_that_keeps_size_and_mtime_is_found(tmp_path):
    note = write_note(tmp_path / "workspace", "memory/a.md", "The parrot is green.\n")
    with open_memory(tmp_path) as memory:
        memory.sync()
        state = note.stat()
        note.write_text("The parrot is white.\n")
        os.utime(note, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert "white" in memory.search("white").hits[0].snippet


def test_a_deleted_note_is_not_shown_even_when_searches_do_not_sync(tmp_path):
    workspace = tmp_path / "workspace"
    gone = write_note(workspace, "memory/gone.md", "The parrot is green.\n")
    changed = write_note(workspace, "memory/changed.md", "The parrot eats seeds.\n")
    write_note(workspace, "memory/same.md", "The parrot sings.\n")
    with open_memory(tmp_path, settings={"memory_search.sync.on_search": False}) as memory:
        memory.sync()
        gone.unlink()
        changed.write_text("Nothing about birds.\n")
        result = memory.search("parrot")
        assert paths(result) == ["memory/same.md"]
        assert "left out" in result.degraded[0]
        assert {dropped.reason for dropped in result.dropped} == {"gone from disk"}


def test_filters_limit_what_is_found(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/2026-01-05.md", "parrot in January\n")
    write_note(workspace, "memory/2026-02-05.md", "parrot in February\n")
    write_note(workspace, "memory/birds/zoo.md", "parrot in the zoo\n")
    clock = FrozenClock()
    with open_memory(tmp_path, clock=clock) as memory:

        def search_paths(**filters):
            return sorted(paths(memory.search("parrot", **filters)))

        assert len(search_paths()) == 3
        assert search_paths(path="memory/2026-*") == ["memory/2026-01-05.md", "memory/2026-02-05.md"]
        assert search_paths(path="memory/birds") == ["memory/birds/zoo.md"]
        assert search_paths(path="memory/birds/zoo.md") == ["memory/birds/zoo.md"]
        assert search_paths(path="memory/bird") == []
        assert search_paths(until="2026-01-05") == ["memory/2026-01-05.md"]
        assert search_paths(since="2026-01-06", until="2026-02-05") == ["memory/2026-02-05.md"]
        assert search_paths(source="sessions") == []
        assert len(search_paths(source="memory")) == 3
        with pytest.raises(UsageError):
            search_paths(since="the day after never")


def test_age_breaks_ties_and_never_removes_a_match(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/2016-03-01.md", "the zeppelin landed\n")
    write_note(workspace, "memory/2026-03-01.md", "the zeppelin started\n")
    with open_memory(tmp_path, clock=FrozenClock(), settings={"memory_search.provider": "none"}) as memory:
        assert paths(memory.search("zeppelin")) == ["memory/2026-03-01.md", "memory/2016-03-01.md"]
        assert paths(memory.search("zeppelin landed"))[0] == "memory/2016-03-01.md"


def test_a_near_duplicate_steps_back_behind_other_hits_of_its_grade(tmp_path):
    workspace = tmp_path / "workspace"
    same = "The parrot is green and sits on the fence near the old barn every single morning"
    write_note(workspace, "memory/first.md", same + ".\n")
    write_note(workspace, "memory/second.md", same + "!\n")
    write_note(workspace, "memory/third.md", "A green parrot of another kind is by the fence of the barn.\n")
    write_note(workspace, "memory/fourth.md", "The barn was sold to a family from the city, who will use it for hay.\n")
    with open_memory(tmp_path) as memory:
        hits = memory.search("green parrot garden fence barn autumn lighthouse").hits
    by_path = {hit.path: hit.grade for hit in hits}
    assert by_path["memory/third.md"] == by_path["memory/second.md"] != by_path["memory/fourth.md"], by_path
    assert {hit.path for hit in hits[:2]} & {"memory/third.md"}
    assert [hit.path for hit in hits][3] == "memory/fourth.md"


def test_hits_that_fit_much_less_do_not_push_out_a_near_duplicate_in_another_note(tmp_path):
    workspace = tmp_path / "workspace"
    same = "The parrot is green and sits on the fence near the old barn every single morning"
    write_note(workspace, "memory/first.md", same + ".\n")
    write_note(workspace, "memory/second.md", same + "!\n")
    for place in ("of Ada is in the barn of a cousin", "ate seeds by a barn in Bern", "left its barn for a warm attic"):
        write_note(workspace, f"memory/{place[:3].strip()}.md", f"A green parrot {place}.\n")
    for number in range(20):
        write_note(workspace, f"memory/{number}.md", f"Delivery {number} went to street {number}.\n")
    with open_memory(tmp_path, settings={"memory_search.provider": "none"}) as memory:
        hits = memory.search("green parrot fence barn neighbour", max_results=3).hits
    assert {hit.grade for hit in hits} == {"likely"}
    assert {hit.path for hit in hits[:2]} == {"memory/first.md", "memory/second.md"}


def test_a_snippet_has_the_most_of_the_words_and_not_the_most_repetitions_of_one(tmp_path):
    items = [f"- heron{n} at the pond, the heron of the day" for n in range(30)]
    items[27] = "- ibis with heron27 at the lake"
    write_note(tmp_path / "workspace", "memory/list.md", "# List\n\n" + "\n".join(items) + "\n")
    with open_memory(tmp_path) as memory:
        for query in ("heron27", "ibis and heron"):
            (hit,) = memory.search(query)
            assert len(hit.snippet) <= 700
            assert items[27] in hit.snippet


@pytest.mark.parametrize(
    ("settings", "notice"),
    [({"memory_search.provider": "openai"}, "API key"), ({"memory_search.query.hybrid.enabled": False}, None)],
)
def test_words_answer_where_vectors_cannot_be_made_or_are_not_wanted(tmp_path, notes, settings, notice):
    with open_memory(tmp_path, settings=settings, embedder=None) as memory:
        result = memory.search("tomatoes")
    assert paths(result) == ["memory/garden.md"]
    assert [notice in reason for reason in result.degraded] == ([True] if notice else [])


def test_switched_off_means_off(tmp_path, notes):
    with (
        open_memory(tmp_path, settings={"memory_search.enabled": False}) as memory,
        pytest.raises(Exception, match="switched off"),
    ):
        memory.search("tomatoes")
