"""What a line says, and how two lines relate: by rules, on pairs that somebody wrote who had not seen them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kept.notes.fact_changes import compare_facts, differ
from kept.notes.facts import read_fact

DATA = Path(__file__).parent / "data"
FILES = ("pairs_of_lines.jsonl", "more_pairs_of_lines.jsonl")
PAIRS = [json.loads(line) for name in FILES for line in (DATA / name).read_text().splitlines()]
KINDS = {"changes": "change", "repeats": "repetition", "restates": "repetition", None: "none"}


def relation(older, newer, **options):
    return compare_facts(read_fact(newer), read_fact(older), **options)


def judge(pair):
    """Return what is proposed for a pair. A line of a daily note is never proposed as replaced."""
    return "none" if pair["older_note"] == "daily" else KINDS[relation(pair["older"], pair["newer"])]


@pytest.mark.parametrize(
    ("name", "most_false", "least_found"),
    [
        (None, 0, 36),
        ("work, study and money", 0, 26),
        ("home, health and clubs", 0, 35),
        # Written together with the rules: what a line tells of one attribute changes no other.
        ("one subject, two attributes", 3, 14),
    ],
)
def test_no_event_and_nothing_that_also_holds_is_proposed_as_changed_and_most_changes_are_found(
    name, most_false, least_found
):
    counts = Counter((pair["label"], judge(pair)) for pair in PAIRS if pair.get("set") == name)
    for kind in ("change", "repetition"):
        proposed = sum(count for (_, given), count in counts.items() if given == kind)
        labelled = sum(count for (label, _), count in counts.items() if label == kind)
        print(f"{name}: {kind}: precision {counts[kind, kind]}/{proposed}, recall {counts[kind, kind]}/{labelled}")
    assert sum(count for (label, given), count in counts.items() if given == "change" != label) <= most_false
    assert counts["change", "change"] >= least_found


@pytest.mark.parametrize(
    "text", ["Ran 5 km in 27 minutes", "2024-05-01: the pump failed", "Invoice 4711 paid, 120 EUR"]
)
def test_what_happened_is_an_event(text):
    assert read_fact(text).is_event


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Staging is on port 5433", "Staging is on port 6000"),
        ("Ada likes tea", "Ada does not like tea"),
        ("Ada lives in Kiel", "Ada moved to Bonn"),
        ("The cache is in Frankfurt", "The cache is in Paris"),
        ("My favourite colour is purple", "My favourite colour is cyan"),
        ("Ticket 812 is open", "Ticket 812 is closed"),
        ("Deploys happen on Fridays", "Deploys happen on Tuesdays now"),
        ("Our lawyer is Mr. Shah", "Our lawyer: Ms. Roth"),
    ],
)
def test_another_value_a_negation_and_an_end_are_changes(older, newer):
    assert relation(older, newer) == "changes"


def test_two_lines_with_the_same_value_repeat_each_other():
    assert relation("Staging database runs on port 5432", "The staging database listens on 5432") == "restates"
    assert relation("Staging is on port 5433.", "staging is on port 5433") == "repeats"


def test_the_name_of_a_note_says_whose_value_a_line_has():
    line, name = "Phone +31 6 1234 5678", frozenset(("people", "ben", "okafor"))
    assert relation(line, "Ben's phone is now +31 6 9999 0000", note=name) == "changes"
    assert relation(line, "Ada's phone is now +31 6 9999 0000", note=name) is None
    assert relation("Port: 5173", "Port: 4200", note=frozenset(("frontend",))) is None


def test_lines_about_other_things_do_not_differ():
    port = read_fact("Staging database moved again: port 6543")
    assert differ(read_fact("The staging database is on port 7000"), port)
    assert not differ(read_fact("Lunch with Omar Aziz"), read_fact("Call with Omar Aziz about permissions"))
    assert not differ(read_fact("Call with Elena about the budget"), read_fact("Call with Elena about hiring"))


@pytest.mark.parametrize(
    "text", ["", " ", "-", "…", "太郎は猫が好き。", "x" * 5000, "1" * 400, "x@" * 2000, "(((", "a: b: c", "\x00"]
)
def test_any_text_can_be_read(text):
    assert relation(text, "Ada likes tea") is None
