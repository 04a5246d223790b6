"""A score means the same for every query: scaled by how sure it is that there is an answer, in an unchanged order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.records import LIKELY_FROM, STRONG_FROM
from kept.search.candidates import Evidence
from kept.search.scores import Signals, calibrate, estimate_confidence, share_in_runs
from tests.support.candidates import Candidate, candidate, fuse
from tests.support.workspaces import open_memory, write_note

figures = st.floats(0, 1)
LARGE = 1_000


def found(row: int, reach: float, meaning: float = 0.0, matched: tuple[str, ...] = (), age: float = 9.0) -> Candidate:
    evidence = Evidence(words=reach, coverage=reach, reach=reach, meaning=meaning)
    return candidate(row, evidence, matched, age_days=age)


def signals(share: float, together: float, meaning: float | None, passages: int = LARGE, **others) -> Signals:
    return Signals(share, together, meaning, passages=passages, **others)


@given(st.lists(st.tuples(figures, figures, st.floats(0, 400)), min_size=1, max_size=12), figures)
def test_the_order_stays_and_the_parts_add_up(drawn, best):
    candidates = [found(row, reach, meaning, age=age) for row, (reach, meaning, age) in enumerate(drawn)]
    ranked = fuse(candidates, 0.3)
    scaled = calibrate(ranked, best, signals(0.5, 2, 0.5))
    assert [scored.chunk.row for scored in scaled] == [scored.chunk.row for scored in ranked]
    for scored, after in pairwise(scaled):
        assert scored.score >= after.score
    for scored in scaled:
        assert sum(part.value for part in scored.parts()) == pytest.approx(scored.score)
        assert -1e-9 <= scored.relevance <= scored.score + 1e-9 <= 1 + 1e-6
        beside = sum(part.value for part in scored.parts() if part.name in ("recency", "when"))
        assert scored.score - beside == pytest.approx(scored.relevance)


@given(
    figures, st.floats(0, 20), figures, figures, figures, st.integers(0, 100_000), st.integers(1, 30), st.floats(0, 1)
)
def test_more_of_anything_never_makes_it_less_sure(share, together, meaning, first, runs, passages, words, more):
    def sure(*, share=share, together=together, meaning=meaning, first=first, crowd=1.0, runs=runs):
        return estimate_confidence(
            signals(share, together, meaning, passages, first=first, crowd=crowd, runs=runs, query_words=words)
        )

    now = sure()
    assert 0 <= now <= 1
    assert sure(together=together + more) >= now
    assert sure(crowd=1.0 + more) <= now
    for name, figure in {"meaning": meaning, "first": first, "share": share, "runs": runs}.items():
        assert sure(**{name: min(1.0, figure + more)}) >= now, name


def test_a_first_hit_among_equals_is_likely_and_one_that_stands_alone_is_strong():
    equal, leader = (signals(0.8, 4, 0.3, first=0.7, crowd=crowd, query_words=5) for crowd in (2.6, 0.3))
    assert LIKELY_FROM <= estimate_confidence(equal) < STRONG_FROM <= estimate_confidence(leader)


def test_a_question_in_another_language_is_answered_by_what_is_near_among_as_many_passages():
    few, many = (
        signals(0.0, 0, 0.1, passages, nearest=0.4, most_by_meaning=0.59, query_words=6) for passages in (200, 20_000)
    )
    assert estimate_confidence(many) < LIKELY_FROM <= estimate_confidence(few) < STRONG_FROM
    far = signals(0.0, 0, 0.3, 200, nearest=0.2, most_by_meaning=0.59, query_words=6)
    assert estimate_confidence(far) < LIKELY_FROM
    in_the_notes = signals(0.2, 1, 0.1, 200, nearest=0.4, most_by_meaning=0.59, query_words=6, unknown_words=1)
    assert estimate_confidence(in_the_notes) < LIKELY_FROM


def test_runs_of_four_letters_or_two_ideographs_count_and_shorter_ones_do_not():
    assert share_in_runs("备用钥匙在哪里", "备用钥匙挂在门后") == pytest.approx(4 / 7)
    assert share_in_runs("备用 钥匙", "钥匙备用") == 1
    assert share_in_runs("在哪里", "挂在门后的那里") == 0
    assert share_in_runs("กุญแจสำรองอยู่ที่ไหน", "กุญแจสำรองแขวนอยู่หลังประตู") > 0.5
    assert share_in_runs("กุญ สำร", "กุญแจสำรองแขวนอยู่หลังประตู") == 0
    assert share_in_runs("keys", "keys") == 0


# through the whole search

TOPICS = ("harbour", "violin", "turbine", "orchard", "ledger", "glacier", "printer", "saddle", "compass", "lantern")
DEEDS = ("repaired", "painted", "borrowed", "measured", "polished", "packed", "sold", "counted", "insured", "moved")


@pytest.fixture(params=["local", "none"])
def notes(request, tmp_path):
    """Two hundred notes, each of one thing that was done to another."""
    for at in range(200):
        topic, deed = TOPICS[at % 10], DEEDS[at // 10 % 10]
        text = f"Number {at}: the {topic} was {deed} by neighbour{at} with tool{at} after lunch{at}.\n"
        write_note(tmp_path / "workspace", f"memory/{at:03}.md", text)
    with open_memory(tmp_path, embedder=None, settings={"memory_search.provider": request.param}) as memory:
        yield memory


def test_a_question_about_something_else_is_not_answered(notes):
    assert notes.search("How long should sourdough proof in a cold kitchen after kneading?").answered == "no"


@pytest.mark.parametrize("notes", ["none"], indirect=True)
def test_words_of_the_notes_thrown_together_find_only_weak_hits(notes):
    query = "neighbour3 tool58 lunch77 tool140 neighbour199"
    assert {hit.grade for hit in notes.search(query)} == {"weak"}
    refused = notes.search(query, min_score=LIKELY_FROM)
    assert refused.hits == ()
    assert {dropped.reason for dropped in refused.dropped} == {"below min_score"}


NOTES = {
    "en": (
        "The spare key hangs behind the cellar door.",
        "The meeting was moved to Friday.",
        "The printer needs paper.",
    ),
    "ru": ("Запасной ключ висит за дверью подвала.", "Встреча перенесена на пятницу.", "В принтере нет бумаги."),
    "th": ("กุญแจสำรองแขวนอยู่หลังประตูห้องใต้ดิน", "การประชุมเลื่อนไปเป็นวันศุกร์", "เครื่องพิมพ์ต้องการกระดาษเพิ่ม"),
    "zh": ("备用钥匙挂在地下室的门后面", "会议改到了星期五下午", "打印机里没有纸了"),
    "ja": ("予備の鍵は地下室のドアの裏に掛かっている", "会議は金曜日に変更された", "プリンターの紙がなくなった"),
}
QUESTIONS = {
    "en": "where is the spare key of the cellar",
    "ru": "где запасной ключ от подвала",
    "th": "กุญแจสำรองแขวนอยู่ที่ไหน",
    "zh": "备用钥匙挂在哪里",
    "ja": "予備の鍵は地下室のどこにある",
}
NONSENSE = (
    "blorp fentiwick margle|zzxq wibble|дрымба хвощлик жмырт|ฆฌฎฏ ซฒณธ ฬฮฐญ|龘靐齉 爩鱻麤|ぬへゐ ゑをん ぢづゎ".split(
        "|"
    )
)


@pytest.fixture(params=["local", "none"])
def vault(request, tmp_path):
    """Notes in five languages."""
    for language, texts in NOTES.items():
        for at, text in enumerate(texts):
            write_note(tmp_path / "workspace", f"memory/{language}{at}.md", f"{text}\n")
    with open_memory(tmp_path, embedder=None, settings={"memory_search.provider": request.param}) as memory:
        yield memory


def test_nonsense_is_never_more_than_weak_in_any_script(vault):
    graded = {query: {hit.grade for hit in vault.search(query)} for query in NONSENSE}
    assert {query: grades for query, grades in graded.items() if not grades <= {"weak"}} == {}


@pytest.mark.parametrize("language", QUESTIONS)
def test_an_answer_is_likely_or_better_in_any_script(vault, language):
    first = vault.search(QUESTIONS[language]).hits[0]
    assert (first.path, first.grade != "weak") == (f"memory/{language}0.md", True)
