"""One-time links, cookies and tokens."""

from __future__ import annotations

from kept.testing import FrozenClock
from kept.web.web_access import WebAccess

KEY = b"k" * 32


def test_a_link_opens_the_pages_once():
    access = WebAccess(KEY, FrozenClock())
    key = access.make_link_key()
    assert access.take_link_key(key)
    assert not access.take_link_key(key)


def test_a_link_expires_after_a_quarter_of_an_hour():
    clock = FrozenClock()
    access = WebAccess(KEY, clock)
    early, late = access.make_link_key(), access.make_link_key()
    clock.move(minutes=14)
    assert access.take_link_key(early)
    clock.move(minutes=1)
    assert not access.take_link_key(late)


def test_a_used_link_does_not_open_the_pages_of_the_next_server():
    clock = FrozenClock()
    first = WebAccess(KEY, clock)
    key = first.make_link_key()
    assert first.take_link_key(key)
    clock.move(seconds=1)
    assert not WebAccess(KEY, clock).take_link_key(key)


def test_another_process_with_the_key_makes_links_for_a_running_server():
    clock = FrozenClock()
    server = WebAccess(KEY, clock)
    clock.move(seconds=5)
    assert server.take_link_key(WebAccess(KEY, clock).make_link_key())
    assert not server.take_link_key(WebAccess(b"x" * 32, clock).make_link_key())
    assert WebAccess(KEY, clock).answer("challenge") == server.answer("challenge")
    assert WebAccess(b"x" * 32, clock).answer("challenge") != server.answer("challenge")


def test_forged_links_and_cookies_are_refused():
    access = WebAccess(KEY, FrozenClock())
    for text in ("", ".", "..", "zz.nonce.signature", access.make_cookie(), "ü.ü", access.make_link_key() + "0"):
        assert not access.take_link_key(text)
    for text in ("", ".", "zz.nonce.signature", access.make_link_key(), "ü.ü", access.make_cookie()[1:]):
        assert not access.grant_of(text)


def test_a_cookie_outlives_the_server_and_ends_after_a_month():
    clock = FrozenClock()
    cookie = WebAccess(KEY, clock).make_cookie()
    clock.move(days=29)
    assert WebAccess(KEY, clock).grant_of(cookie)
    clock.move(days=2)
    assert not WebAccess(KEY, clock).grant_of(cookie)


def test_a_changed_token_ends_every_visit():
    clock = FrozenClock()
    cookie = WebAccess(KEY, clock, token="old").make_cookie()
    assert not WebAccess(KEY, clock, token="new").grant_of(cookie)


def test_after_ten_wrong_tokens_even_the_right_one_has_to_wait_a_minute():
    clock = FrozenClock()
    access = WebAccess(KEY, clock, token="secret")
    assert access.find_grant("secret")
    assert not any(access.find_grant("guess") for _ in range(10))
    assert not access.find_grant("secret")
    clock.move(minutes=1)
    assert access.find_grant("secret")


def test_without_a_token_none_is_accepted():
    access = WebAccess(KEY, FrozenClock())
    assert not access.find_grant("")
    assert not access.has_token


def test_a_form_token_belongs_to_one_cookie():
    access = WebAccess(KEY, FrozenClock())
    mine, other = access.make_cookie(), access.make_cookie()
    assert access.knows_form_token(mine, access.form_token(mine))
    assert not access.knows_form_token(mine, access.form_token(other))
    assert not access.knows_form_token(mine, "")
