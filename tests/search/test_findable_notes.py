"""What a note is found by, and what is no answer."""

import pytest

from tests.support.workspaces import open_memory, write_note

LOCAL = {"memory_search.provider": "local"}
OTHERS = {
    "Recipes/Semlor.md": "# Semlor\n\nKnead flour, butter and cardamom. Fill with almond paste and cream.\n",
    "Home/Insurance.md": "# Insurance\n\nThe policy of the flat is renewed every quarter. Premium 38 euros.\n",
    "Work/Staging.md": "# Staging\n\nThe staging database listens on port 5433.\n",
    "Sport/Running.md": "# Running\n\nEight kilometres along the river, slow.\n",
    "Health/Doctor.md": "# Doctor\n\nThe practice opens at eight. Bring the insurance card.\n",
}
KARIN = "---\ntitle: Mama\naliases: [Karin Lindqvist, the seamstress]\n---\n\nPhone +46 70 123 45 67.\n"


@pytest.fixture
def vault(tmp_path):
    for path, text in {**OTHERS, "People/p07.md": KARIN}.items():
        write_note(tmp_path / "workspace", f"memory/{path}", text)
    with open_memory(tmp_path, settings=LOCAL) as memory:
        yield memory


@pytest.mark.parametrize(
    "query",
    ["Karin", "who is Karin", "Mama", "the seamstress", "Karin Lindqvist", "what is the phone number of Karin", "p07"],
)
def test_a_note_is_found_by_each_word_of_its_names_and_lends_no_other_note_confidence(vault, query):
    first, *others = vault.search(query).hits
    assert first.path == "memory/People/p07.md"
    assert first.grade != "weak"
    assert {hit.grade for hit in others} <= {"weak"}


def test_words_of_a_given_title_rank_like_those_of_a_heading(tmp_path):
    write_note(tmp_path / "workspace", "memory/a.md", "# Quarterly zebra plan\n\nNothing yet.\n")
    write_note(tmp_path / "workspace", "memory/b.md", "---\ntitle: Quarterly zebra plan\n---\n\nNothing yet.\n")
    for path, text in OTHERS.items():
        write_note(tmp_path / "workspace", f"memory/{path}", text)
    with open_memory(tmp_path, settings=LOCAL) as memory:
        first, second, *others = memory.search("zebra").hits
    assert {first.path, second.path} == {"memory/a.md", "memory/b.md"}
    assert second.text_score == pytest.approx(first.text_score, abs=0.05)
    assert {hit.grade for hit in others} <= {"weak"}


DIARY = {
    "a": "I ran along the Vecht.",
    "b": "She bought a lamp.",
    "c": "He wrote to the landlord.",
    "d": "They went to Utrecht.",
    "e": "The glass broke.",
    "f": "The mice ate cheese.",
    "g": "Windows are clean.",
    "h": "Runners meet by six.",
}


@pytest.mark.parametrize("provider", ["none", "local"])
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("run", "a"),
        ("running", "a"),
        ("did she buy a lamp", "b"),
        ("buying", "b"),
        ("write", "c"),
        ("go", "d"),
        ("break", "e"),
        ("mouse", "f"),
        ("eat", "f"),
        ("met", "h"),
    ],
)
def test_irregular_forms_of_a_word_find_it(tmp_path, provider, query, name):
    for other, text in DIARY.items():
        write_note(tmp_path / "workspace", f"memory/{other}.md", f"{text}\n")
    with open_memory(tmp_path, settings={"memory_search.provider": provider}) as memory:
        first = memory.search(query).hits[0]
        assert (first.path, first.grade != "weak") == (f"memory/{name}.md", True)
        quoted = memory.search(f'"{query}"').hits
        assert not any(part.name == "words" and "for" in part.detail for hit in quoted for part in hit.parts)


def test_a_heading_without_text_is_no_answer(tmp_path):
    for day in range(1, 6):
        text = f"## Log\n\n## Landlord\n\nThe landlord called about bill {day}.\n\n## Log again\n"
        write_note(tmp_path / "workspace", f"memory/2026-11-0{day}.md", text)
    write_note(tmp_path / "workspace", "memory/milk.md", "# Buy milk\n")
    with open_memory(tmp_path, settings=LOCAL) as memory:
        assert all("called" in hit.snippet for hit in memory.search("who owns my flat"))
        assert {hit.grade for hit in memory.search("log")} == {"weak"}
        assert memory.search("buy milk").hits[0].path == "memory/milk.md"
        assert memory.search("buy milk").answered == "yes"


@pytest.mark.parametrize("query", ["water the plants", "watering", "x", "Adyen contract"])
def test_a_task_that_is_done_is_no_answer(tmp_path, query):
    tasks = "- [x] water the plants\n- [ ] call the landlord about the plants\n* [X] sign the contract of Adyen\n"
    write_note(tmp_path / "workspace", "memory/tasks.md", f"# Tasks\n\n{tasks}")
    for path, text in OTHERS.items():
        write_note(tmp_path / "workspace", f"memory/{path}", text)
    with open_memory(tmp_path, settings=LOCAL) as memory:
        assert memory.search("call the landlord").answered == "yes"
        result = memory.search(query)
    if query == "water the plants":  # one of its words is in a task that is not done
        assert result.hits[0].path == "memory/tasks.md"
    else:
        assert result.answered == "no"


def test_the_data_of_a_drawing_is_no_answer_and_its_words_are(tmp_path):
    data = "N4IgLgngDgpiBcIYA8DGBDANgSwCYCd0B3EAGhADcZ8BnbAewDsEAmcm+gV31TkQAswYKDXgB6MQHNsYfpwBGAOlT0AtmIBeNCtlQbs6"
    write_note(
        tmp_path / "workspace",
        "memory/Flow.excalidraw.md",
        "---\nexcalidraw-plugin: parsed\n---\n\n# Text Elements\nlogin flow ^a1b2c3\n\n%%\n## Drawing\n"
        f"```compressed-json\n{data}\n\n{data[::-1]} #tag\n```\n%%\n",
    )
    with open_memory(tmp_path, settings=LOCAL) as memory:
        (hit,) = memory.search("login flow").hits
        assert (hit.start_line, hit.end_line) == (5, 6)
        found = [memory.search(query).hits for query in (data[:12], data, "xqzvb wqpl")]
        assert not any("N4Ig" in hit.snippet for hits in found for hit in hits)


def test_in_a_few_notes_the_closest_are_shown_and_called_uncertain(tmp_path):
    write_note(tmp_path / "workspace", "MEMORY.md", "# Memory\n")
    write_note(tmp_path / "workspace", "USER.md", "# User\n")
    line = "We decided to use Postgres for billing because of row locks"
    write_note(tmp_path / "workspace", "memory/2026-11-18.md", f"# 2026-11-18\n\n## 09:26\n\n{line}\n")
    with open_memory(tmp_path, settings=LOCAL) as memory:
        for query in ("what database for invoices", "medication I must avoid", "who is my landlord"):
            result = memory.search(query)
            assert [hit.path for hit in result] == ["memory/2026-11-18.md"]
            assert (result.answered, result.hits[0].grade) == ("no", "weak")
            assert line in result.hits[0].snippet
        assert memory.search("qwxz plugh zzyzx").hits == memory.search("submarine").hits == ()
