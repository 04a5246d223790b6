"""Words for the full-text index: any part of an unspaced run is found, and no letter is lost."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.words.segment import fold, normalise, segment, segment_run, split_scripts


def test_text_in_plain_letters_is_stored_as_it_is():
    assert segment("Plain text, v2.1_x") == "Plain text, v2.1_x"


RUNS = st.text(st.sampled_from("漢字かなカナ한글กขคงລາວ々"), min_size=1, max_size=12)


@given(before=st.text("ab .", max_size=4), run=RUNS, data=st.data())
def test_every_part_of_an_unspaced_run_is_a_phrase_of_its_pairs(before, run, data):
    run = normalise(run)
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    words = segment(before + run).split()
    pairs = segment_run(run[start:end])
    if end - start == 1:
        assert any(word.startswith(pairs[0]) for word in words)
    else:
        assert any(words[at : at + len(pairs)] == pairs for at in range(len(words)))


def test_one_spelling_for_what_looks_the_same():
    assert normalise("Ｋｅｐｔ　①") == "Kept 1"
    assert normalise("e\u0301") == "é"
    assert normalise("❤\ufe0f") == normalise("❤")


def test_pictograms_are_words_of_their_own():
    assert segment("ship🚀now").split() == ["ship", "🚀", "now"]


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("GPT模型", ["GPT", "模型"]),
        ("模型v2", ["模型", "v2"]),
        ("plain", ["plain"]),
        ("模型", ["模型"]),
        ("", []),
        ("a模b", ["a", "模", "b"]),
    ],
)
def test_a_word_is_split_where_an_unspaced_script_begins_or_ends(word, parts):
    assert split_scripts(word) == parts


@given(st.text(max_size=100))
def test_segmenting_takes_any_text_and_loses_no_letter(text):
    letters = {letter for letter in fold(normalise(text)) if not letter.isspace()}
    assert letters <= set(segment(text))


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0f73", "\u0f71\u0f72"])
def test_marks_without_end_on_one_letter_are_not_put_in_order(marks):
    assert len(normalise("a" + marks * 500_000 + " é")) < 100
    assert normalise("a" + marks * 10) == unicodedata.normalize("NFKC", "a" + marks * 10)


def test_long_runs_without_spaces_are_spelt_as_short_ones_are():
    run = "か\u3099각กำe\u0301" * 100
    assert normalise(run) == unicodedata.normalize("NFKC", run)
