"""The terms of a query, their spelling, and the notes that they find."""

import pytest

from kept.search.query import parse_query
from tests.support.workspaces import open_memory, paths, write_note

WORDS_ONLY = {"memory_search.provider": "none"}


def terms(query: str) -> list[str]:
    return [term.text.lower() for term in parse_query(query).terms]


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("which port is the staging database on?", ["port", "staging", "database"]),
        ("Wo ist die Katze von Müller?", ["katze", "muller"]),
        ("¿Dónde está el coche rojo?", ["coche", "rojo"]),
        ("Où est la clé de l'avion ?", ["cle", "avion"]),
        ("где находится ключ от сарая", ["находится", "ключ", "сарая"]),
        ("bu evin anahtarı nerede ve kimin", ["evin", "anahtari"]),
        ("أين مفتاح البيت من هذا", ["مفتاح", "البيت"]),
        ("घर की चाबी कहाँ है", ["घर", "चाबी"]),
        ("kunci 是什么", ["kunci"]),
        ("DECnet คืออะไร", ["decnet"]),
    ],
)
def test_small_words_are_dropped_in_the_language_of_the_query(query, left):
    assert terms(query) == left


@pytest.mark.parametrize(
    "query", ["die hard", "die another day", "los angeles", "la la land", "war and peace", "an hat"]
)
def test_a_word_is_kept_where_only_another_language_would_drop_it(query):
    assert set(query.split()) - set(terms(query)) <= {"and", "an"}


@pytest.mark.parametrize("query", ["to be or not to be", "wo ist das", "คืออะไร", "是什么"])
def test_small_words_alone_are_looked_for(query):
    assert terms(query)


@pytest.mark.parametrize(
    ("written", "query"),
    [
        ("Wir trafen uns im Café.", "cafe"),
        ("Die Straße ist gesperrt.", "strasse"),
        ("Die Strasse ist gesperrt.", "Straße"),
        ("İstanbul'da kış geldi, ılık değil.", "istanbul"),
        ("Ёлка стоит в углу.", "елка"),
        ("Η Ελλάδα είναι όμορφη.", "ελλαδα"),
        ("كَتَبَ الرسالة أمس", "كتب"),
        ("هذه مدرسة كبيرة", "مدرسه"),
        ("שָׁלוֹם לכולם", "שלום"),
        ("Smørrebrød with Æbler.", "smorrebrod aebler"),
        ("Los niños corrían por la montaña.", "montaña"),
    ],
)
def test_spellings_of_one_word_find_each_other(tmp_path, written, query):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/it.md", written + "\n")
    write_note(workspace, "memory/other.md", "Ganz etwas anderes, something else entirely, чай и кофе.\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search(query)) == ["memory/it.md"]


def test_letters_that_only_look_alike_stay_apart(tmp_path):
    write_note(tmp_path / "workspace", "memory/it.md", "Мои дом и сад.\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search("йод")) == []


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("getUserName", "user name"),
        ("get_user_name", "user name"),
        ("XMLHttpRequest", "http request"),
        ("ref-0200-3", "0200"),
        ("src/orders/app.py", "gateway/app.py"),
        ("ada@example.org", "example.org"),
        ("https://example.org/docs/setup?x=1", "docs/setup"),
        ("#1234", "1234"),
        ("Straßenname", "strassenname"),
    ],
)
def test_a_name_is_found_whole_and_by_its_parts(tmp_path, name, parts):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/it.md", f"We agreed to use {name} for this one.\n")
    write_note(workspace, "memory/other.md", "We agreed on lunch and on nothing besides.\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search(name))[:1] == ["memory/it.md"]
        assert paths(memory.search(parts))[:1] == ["memory/it.md"]


def test_parts_of_names_break_no_phrase(tmp_path):
    write_note(tmp_path / "workspace", "memory/it.md", "Then getUserName returns nothing at all.\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        hit = memory.search('"then getusername returns nothing"').hits[0]
    assert any(part.name == "exact" for part in hit.parts)


def test_a_blob_of_letters_is_not_taken_apart(tmp_path):
    write_note(tmp_path / "workspace", "memory/it.md", "aB" * 5_000 + " parrot\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search("parrot")) == ["memory/it.md"]


@pytest.mark.parametrize("quotes", ['""', "“”", "„“", "«»", "»«", "””", "「」", "『』"])
def test_any_quotes_make_a_phrase(quotes):
    terms = parse_query(f"{quotes[0]}red door key{quotes[1]}").terms
    assert [(term.text, term.kind) for term in terms] == [("red door key", "phrase")]


@pytest.mark.parametrize(
    ("note", "query"),
    [
        ("我在北京大学学习计算机科学。", "“计算机”"),
        ("我们用GPT模型好吗", '"GPT模型"'),
        ("東京のお客様は抹茶クロワッサンを注文します。", "「抹茶クロワッサン」"),
        ("ฉันชอบกินข้าวผัดกุ้งมากที่สุด", '"ข้าวผัดกุ้ง"'),
        ("Das Modell heißt 模型X und läuft.", '"heißt 模型X und"'),
    ],
)
def test_a_quoted_phrase_of_any_script_is_found(tmp_path, note, query):
    workspace = tmp_path / "workspace"
    write_note(workspace, "memory/it.md", note + "\n")
    write_note(workspace, "memory/other.md", "机计算 型模 クロ抹茶 กุ้งผัด 공학컴퓨터 und heißt es\n")
    with open_memory(tmp_path, settings=WORDS_ONLY) as memory:
        assert paths(memory.search(query))[0] == "memory/it.md"
