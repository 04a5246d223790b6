"""Words that the notes have in another spelling: compounds, typos, beginnings, wildcards and equivalents."""

import pytest

from kept.search.hit_display import is_match, query_words
from kept.search.query import parse_query
from tests.support.workspaces import open_memory, paths, write_note

WORDS_ONLY = {"memory_search.provider": "none"}
NOTES = {
    "zone": "Timezone is Europe/Zurich.",
    "store": "The database runs on Postgres, port 5433.",
    "cluster": "Kubernetes upgrades happen on the first Tuesday.",
    "duty": "Whoever is on call takes the pager home.",
    "photos": "The backup of the photos is on the blue disk.",
    "knee": "Physiotherapy for the knee is on Fridays.",
    "health": "Allergic to penicillin. The vaccination card is in the drawer.",
    "music": "Подготовка концерта начинается осенью.",
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expansion")
    for name, text in NOTES.items():
        write_note(folder / "workspace", f"memory/{name}.md", text)
    for number in range(20):
        write_note(
            folder / "workspace", f"memory/other{number}.md", f"Gardening, part {number}: water the roses at noon."
        )
    with open_memory(folder, settings=WORDS_ONLY) as opened:
        yield opened


def words_part(hit) -> str:
    return next(part.detail for part in hit.parts if part.name == "words")


@pytest.mark.parametrize(
    ("query", "note", "reason"),
    [
        ("what is my time zone", "zone", "timezone for time zone"),
        ("time-zone", "zone", "timezone for time zone"),
        ("back up", "photos", "backup for back up"),
        ("oncall", "duty", "on call for oncall"),
        ("databse", "store", "database for databse"),
        ("databsae", "store", "database for databsae"),
        ("penicilin", "health", "penicillin for penicilin"),
        ("vaccinaton", "health", "vaccination for vaccinaton"),
        ("peniccilin", "health", "penicillin for peniccilin"),
        ("подготовко", "music", "подготовка for подготовко"),
        ("postgresql", "store", "postgres for postgresql"),
        ("postgresish", "store", "postgres for postgresish"),
        ("physio", "knee", "physio* for physio"),
        ("k8s", "cluster", "kubernetes for k8s"),
        ("db", "store", "database for db"),
    ],
)
def test_a_word_finds_another_spelling_and_the_hit_explains_it(memory, query, note, reason):
    first = memory.search(query).hits[0]
    assert first.path == f"memory/{note}.md"
    assert reason in words_part(first)


@pytest.mark.parametrize("query", ["what is my time zone", "oncall", "databse", "postgresql", "k8s", "kube*"])
def test_a_certain_expansion_makes_a_hit_at_least_likely(memory, query):
    assert memory.search(query).hits[0].grade != "weak"


@pytest.mark.parametrize("query", ["kube*", "(kube*)", "KUBE*?", "kubern*"])
def test_an_asterisk_matches_all_words_that_begin_so(memory, query):
    assert paths(memory.search(query)) == ["memory/cluster.md"]


@pytest.mark.parametrize("query", ["*kube", "**kube**", "k*", "* kube *"])
def test_other_asterisks_are_punctuation(query):
    assert {term.kind for term in parse_query(query).terms} == {"word"}


@pytest.mark.parametrize("query", ['"databse"', '"time zone"', "zx9q", "qwertzu", "xylofrant", "2018", "dat"])
def test_quoted_short_and_foreign_words_are_not_expanded(memory, query):
    assert not any(hit.other_words for hit in memory.search(query).hits)


def test_an_expansion_counts_less_than_the_word_itself(tmp_path):
    for name, text in {"a": "The database is large.", "b": "The db is large."}.items():
        write_note(tmp_path / "workspace", f"memory/{name}.md", text)
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search("db")) == ["memory/b.md", "memory/a.md"]
        assert paths(memory.search("database")) == ["memory/a.md", "memory/b.md"]


def test_one_of_several_corrections_is_only_a_guess(tmp_path):
    for name, text in {"a": "The marble is here.", "b": "A marvel of nature.", "c": "Water the roses."}.items():
        write_note(tmp_path / "workspace", f"memory/{name}.md", text)
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        result = memory.search("marbel")
        assert {hit.path for hit in result.hits} == {"memory/a.md", "memory/b.md"}
        assert {hit.grade for hit in result.hits} == {"weak"}


def test_the_spelling_in_the_notes_is_highlighted(memory):
    hit = memory.search("databse").hits[0]
    assert hit.other_words == ("database",)
    assert is_match("Kubernetes", query_words("kube*"))
    assert not is_match("cube", query_words("kube*"))
