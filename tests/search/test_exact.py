"""A note's exact title, identifier or phrase always ranks first."""

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.workspaces import open_memory, paths, write_note

WORDS = (
    "red door key house garden water port staging server night bread oven river bank run runs running the of and "
    "backup restic deploy token user name order cutoff green open closed list file type café über straße 北京 大学 모델"
).split()
JOINS = ("-", "_", "/", ".", "::", "", "@", "#")

words = st.sampled_from(WORDS)
sentences = st.lists(words, min_size=1, max_size=25).map(" ".join)
corpora = st.lists(st.tuples(sentences, sentences), min_size=3, max_size=12)
ascii_words = st.sampled_from([word for word in WORDS if word.isascii() and len(word) > 2])
identifiers = st.builds(
    lambda parts, sign, number: sign.join(part.title() if not sign else part for part in parts) + sign + str(number),
    st.lists(ascii_words, min_size=2, max_size=3),
    st.sampled_from(JOINS),
    st.integers(0, 999),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A new folder for each example."""
    return iter(lambda: tmp_path_factory.mktemp("corpus"), None)


def search_among(folder, corpus, target: str, query: str):
    """The notes of the corpus and the target among them, as one memory; what it finds for the query."""
    workspace = folder / "workspace"
    for number, (title, body) in enumerate(corpus):
        write_note(workspace, f"memory/n{number}.md", f"# {title}\n\n{body}\n")
    write_note(workspace, "memory/target.md", target)
    try:
        with open_memory(folder) as memory:
            return memory.search(query)
    finally:
        shutil.rmtree(folder)


def is_first(result) -> bool:
    """Alone in front, or with nothing in front that is not as exact."""
    at = paths(result).index("memory/target.md")
    exactness = [next((part.detail for part in hit.parts if part.name == "exact"), "") for hit in result]
    return all(detail == exactness[at] for detail in exactness[:at])


examples = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@examples
@given(corpus=corpora, title=st.lists(words, min_size=1, max_size=5).map(" ".join), body=sentences)
def test_a_title_ranks_first(folders, corpus, title, body):
    others = [(f"{title} and more", text) for title, text in corpus]
    result = search_among(next(folders), others, f"# {title}\n\n{body}\n", title)
    assert paths(result)[0] == "memory/target.md"
    assert result.hits[0].parts[-1].detail == "it is the title"


@examples
@given(corpus=corpora, name=identifiers, before=sentences, after=sentences)
def test_an_identifier_ranks_first(folders, corpus, name, before, after):
    result = search_among(next(folders), corpus, f"# Note\n\n{before} {name} {after}\n", name)
    assert paths(result)[0] == "memory/target.md"


@examples
@given(
    corpus=corpora,
    phrase=st.lists(words, min_size=2, max_size=6),
    before=sentences,
    after=sentences,
    quotes=st.sampled_from(["{}", '"{}"', "“{}”", "«{}»"]),
)
def test_a_phrase_ranks_first(folders, corpus, phrase, before, after, quotes):
    text = " ".join(phrase)
    query = quotes.format(text)
    result = search_among(next(folders), corpus, f"# Note\n\n{before} {text} {after}\n", query)
    assert is_first(result)


@pytest.mark.parametrize(
    ("crowd", "text", "queries"),
    [
        (
            "key door red key door red key door red\n",
            "Long ago " + "and so on " * 60 + "the red door key was lost.\n",
            ["red door key"],
        ),
        (
            "Release notes, release notes: read the release notes.\n",
            "# Handbook\n\n## Release notes\n\n" + "They are written on Fridays. " * 40 + "\n",
            ["release notes", "handbook"],
        ),
    ],
)
def test_a_crowd_with_the_same_words_does_not_hide_a_phrase_or_a_title(tmp_path, crowd, text, queries):
    for number in range(120):
        write_note(tmp_path / "workspace", f"memory/n{number}.md", crowd)
    write_note(tmp_path / "workspace", "memory/it.md", text)
    with open_memory(tmp_path) as memory:
        for query in queries:
            assert paths(memory.search(query))[0] == "memory/it.md"


def test_signs_and_the_whole_name_decide_between_names_of_the_same_words(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/words.md", "foo bar, foo bar, foo bar\n")
    write_note(workspace, "memory/signs.md", "Somewhere in a longer text there is foo::bar, which is called.\n")
    write_note(workspace, "memory/issue.md", "See #1234 for it, and what was said about it then.\n")
    write_note(workspace, "memory/count.md", "1234 1234 1234\n")
    write_note(workspace, "memory/ten.md", "v2.3.10 v2.3.10 v2.3.10\n")
    write_note(workspace, "memory/one.md", "After some hesitation everyone moved on to v2.3.1 in the end.\n")
    with open_memory(tmp_path) as memory:
        for query, name in {"foo::bar": "signs", "#1234": "issue", "v2.3.1": "one"}.items():
            assert paths(memory.search(query))[0] == f"memory/{name}.md"


def test_an_exact_match_respects_filters_and_a_single_word_is_no_phrase(tmp_path):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/a/it.md", "# Red door\n\nThe red door.\n")
    write_note(workspace, "memory/b/other.md", "A door that is red.\n")
    with open_memory(tmp_path) as memory:
        assert paths(memory.search("red door", path="memory/b")) == ["memory/b/other.md"]
        assert paths(memory.search("red door", source="sessions")) == []
        assert all(part.name != "exact" for hit in memory.search("door") for part in hit.parts)
