"""People: whose a conversation is, and which conversations and notes a person or a group sees."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.config import load_config
from kept.errors import ConfigError, SessionKeyInvalid, UsageError
from kept.sessions.people import Account, People, account_of, read_account, thread_id
from kept.sessions.session_key import SessionKey

LINKS = {"session.identity_links": {"ada": ["telegram:5054", "http:ada"], "bob": ["http:bob"]}}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


def people(tmp_path: Path, **settings: object) -> People:
    return People(load_config(home=str(tmp_path), settings=settings, environ={}).config)


def key(channel: str, user: str, *, chat_type: str = "direct", account: str = "default") -> SessionKey:
    return SessionKey("main", channel, account, chat_type, user)


def test_a_private_chat_is_seen_by_its_person_on_every_account_of_the_bot_and_by_nobody_else(tmp_path):
    ada = people(tmp_path).viewer(Account("telegram", "5054"))
    assert ada.sees_key(str(key("telegram", "5054")))
    assert ada.sees_key(str(key("telegram", "5054", account="work")))
    assert ada.sees_key(str(key("telegram", "5054:7")))  # a topic of the same chat
    for other in (
        key("telegram", "505"),
        key("telegram", "50540"),
        key("telegram", "15054"),
        key("http", "5054"),
        key("telegram", "5054", chat_type="group"),
        key("telegram", "-5054", chat_type="group"),
        SessionKey("work", "telegram", "default", "direct", "5054"),
        key("terminal", "main"),
        key("claude-code", "5054"),
    ):
        assert not ada.sees_key(str(other)), other
    assert not ada.sees_key("")
    assert not ada.sees_key(None)


def test_a_group_sees_all_its_topics_and_no_private_chat(tmp_path):
    group = people(tmp_path).viewer_of(str(key("telegram", "-1005:3", chat_type="group")))
    assert group.sees_key(str(key("telegram", "-1005", chat_type="group")))
    assert group.sees_key(str(key("telegram", "-1005:4", chat_type="group")))
    assert not group.sees_key(str(key("telegram", "-100", chat_type="group")))
    assert not group.sees_key(str(key("telegram", "-1005")))


@given(NAMES, NAMES, NAMES, NAMES)
def test_no_choice_of_names_lets_one_person_into_the_chats_of_another(one, other, thread, second):
    if one == other:
        return
    config = load_config(home="/nonexistent", environ={}).config
    viewer = People(config).viewer(Account("http", one))
    assert viewer.sees_key(str(key("http", one)))
    assert viewer.sees_key(str(key("http", thread_id(one, thread), chat_type="thread")))
    for chat in (key("http", other), key("http", thread_id(other, second), chat_type="thread")):
        assert not viewer.sees_key(str(chat))
        account = account_of(chat)
        assert account == Account("http", other)
        assert account.folder not in viewer.folders


@given(NAMES, NAMES, st.booleans(), st.booleans())
def test_different_accounts_have_different_folders_where_case_does_not_count(one, other, group, other_group):
    left, right = Account("http", one, group), Account("http", other, other_group)
    assert (left.folder == right.folder) == (left == right)
    assert left.folder == left.folder.lower()
    assert "/" not in left.folder
    assert not left.folder.startswith(".")


@given(
    st.sampled_from(["http", "telegram", "discord", "people", "shared"]),
    NAMES,
    st.sampled_from(["direct", "group", "channel", "thread"]),
)
def test_the_full_key_of_a_conversation_names_the_person_or_group_that_the_conversation_is_with(channel, user, kind):
    everybody = People(load_config(home="/nonexistent", environ={}, settings=LINKS).config)
    chat = str(key(channel, user, chat_type=kind, account="work"))
    assert everybody.find(chat) == everybody.viewer_of(chat)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, SessionKeyInvalid) for text in ("agent:main", "agent:main:http:bob", "agent:")),
        ("agent:main:http:default:direct:bob:7", SessionKeyInvalid),
        *((text, UsageError) for text in ("agent:shop:http:default:direct:bob", "carol", "terminal:main")),
    ],
)
def test_somebody_unknown_a_conversation_elsewhere_and_what_is_no_key_are_nobody(tmp_path, text, error):
    with pytest.raises(error):
        people(tmp_path, **LINKS).find(text)


def test_a_user_whose_name_reads_like_a_group_is_not_that_group(tmp_path):
    linked = people(tmp_path, **{"session.identity_links": {"team": ["http:group:x", "http:lead"]}})
    assert linked.viewer(Account("http", "x", is_group=True)).name == "team"
    assert not linked.viewer(Account("http", "group:x")).sees_key(str(key("http", "lead")))


def test_identity_links_make_one_person_of_several_accounts(tmp_path):
    everybody = people(tmp_path, **LINKS)
    ada = everybody.viewer_of(str(key("telegram", "5054")))
    assert ada == everybody.find("Ada")
    assert (ada.name, ada.folder) == ("ada", "ada")
    assert ada.sees_key(str(key("http", "ada")))
    assert ada.sees_key(str(key("people", "ada")))
    assert not ada.sees_key(str(key("http", "bob")))
    assert {"ada", "ada@http", "5054@telegram"} <= ada.folders


@pytest.mark.parametrize(
    ("scope", "chat", "expected"),
    [
        ("per_person", "telegram:5054", "people:ada"),
        ("per_peer", "http:ada", "people:ada"),
        ("per_person", "http:carol", "http:carol"),
        ("per_channel", "telegram:5054", "telegram:5054"),
        ("per-channel-peer", "http:ada", "http:ada"),
        ("shared", "http:carol", "shared:everybody"),
        ("main", "telegram:5054", "shared:everybody"),
    ],
)
def test_the_scope_decides_which_messages_share_a_session(tmp_path, scope, chat, expected):
    everybody = people(tmp_path, **LINKS, **{"session.scope": scope})
    account, wanted = read_account(chat), read_account(expected)
    assert everybody.session_key(key(account.channel, account.name)) == key(wanted.channel, wanted.name)


def test_groups_threads_and_the_terminal_keep_their_own_sessions(tmp_path):
    everybody = people(tmp_path, **LINKS, **{"session.scope": "shared"})
    for chat in (
        key("telegram", "-100", chat_type="group"),
        key("http", "ada:standup", chat_type="thread"),
        key("terminal", "main"),
    ):
        assert everybody.session_key(chat) == chat


def test_the_owner_sees_conversations_of_the_home_and_none_of_other_people(tmp_path):
    everybody = people(tmp_path, **LINKS, **{"session.owner": "ada"})
    ada, bob = everybody.find("ada"), everybody.find("bob")
    assert ada.is_owner
    assert ada.writes_shared
    assert ada.sees_key(str(key("terminal", "main")))
    assert ada.sees_key(str(key("codex", "x")))
    assert not ada.sees_key(str(key("http", "bob")))
    assert ada.sees_note("memory/private/loose.md")
    assert not bob.is_owner
    assert not bob.sees_key(str(key("terminal", "main")))
    assert not bob.sees_note("memory/private/loose.md")
    assert not everybody.find("ada", may_own=False).is_owner


@pytest.mark.parametrize("owner", ["auto", "none", "http:Ada", "telegram:505", "bob"])
def test_nobody_is_the_owner_whom_the_settings_do_not_name(tmp_path, owner):
    """Neither anybody who is called like a choice of the setting."""
    links = {"session.identity_links": {owner: ["http:mallory"]}} if owner in ("auto", "none") else {}
    everybody = people(tmp_path, **{"session.owner": owner, **links})
    for name in ("http:ada", *([owner] if links else [])):
        nobody = everybody.find(name)
        assert not nobody.is_owner
        assert not nobody.sees_key(str(key("terminal", "main")))
        assert not nobody.sees_note("memory/private/loose.md")


def test_a_conversation_that_lost_its_key_sees_only_what_is_shared(tmp_path):
    viewer = people(tmp_path).viewer_of("")
    assert viewer.sees_note("MEMORY.md")
    assert not viewer.sees_note("memory/private/ada@http/2026-03-14.md")
    assert not viewer.sees_key(str(key("http", "ada")))


def test_notes_in_a_private_folder_are_seen_in_every_spelling_of_the_path_only_by_their_person(tmp_path):
    ada, bob = people(tmp_path, **LINKS).find("ada"), people(tmp_path, **LINKS).find("bob")
    for path in ("memory/private/ada/x.md", "Memory/PRIVATE/Ada/deep/x.md", "memory/private/5054@telegram/x.md"):
        assert ada.sees_note(path)
        assert not bob.sees_note(path)
    assert not ada.sees_note("memory/private/loose.md")
    assert ada.sees_note("memory/privately.md")
    assert bob.sees_note("memory/ideas.md")


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ({"ada": ["5054"]}, "is not an account"),
        ({"a/b": ["http:ada"]}, "cannot be the name"),
        ({"ada@http": ["http:ada"]}, "cannot be the name"),
        ({"ada": ["http:ada"], "bob": ["http:ada"]}, "belongs to ada and to bob"),
    ],
)
def test_links_that_cannot_be_meant_are_refused(tmp_path, links, words):
    with pytest.raises(ConfigError, match=words):
        people(tmp_path, **{"session.identity_links": links})
