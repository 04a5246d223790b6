"""One-time links, cookies and tokens."""

import pytest

from kept.base.clock import SystemClock
from kept.base.net.serving import RateLimiter
from kept.server.tokens import KnownTokens
from kept.server.web.access import WebAccess
from kept.storage.files.file_storage import FileStorage
from kept.testing import FrozenClock
from tests.support.serve_process import create_token

KEY = b"k" * 32


def opened(home, clock, **options):
    return WebAccess(KEY, clock, KnownTokens(FileStorage(str(home)), clock, RateLimiter(0, 1)), **options)


def test_a_link_expires_after_a_quarter_of_an_hour(home):
    clock = FrozenClock()
    access = opened(home, clock)
    early, late = access.make_link_key(), access.make_link_key()
    clock.move(minutes=14)
    assert access.take_link_key(early)
    clock.move(minutes=1)
    assert not access.take_link_key(late)


def test_a_used_link_does_not_open_the_pages_of_the_next_server(home):
    clock = FrozenClock()
    first = opened(home, clock)
    key = first.make_link_key()
    assert first.take_link_key(key)
    clock.move(seconds=1)
    assert not opened(home, clock).take_link_key(key)


def test_forged_links_and_cookies_are_refused(home):
    access = opened(home, FrozenClock())
    for text in ("", ".", "..", "zz.nonce.signature", access.make_cookie(), "ü.ü", access.make_link_key() + "0"):
        assert not access.take_link_key(text)
    for text in ("", ".", "zz.nonce.signature", access.make_link_key(), "ü.ü", access.make_cookie()[1:]):
        assert not access.grant_of(text)


def test_a_cookie_outlives_the_server_and_ends_after_a_month(home):
    clock = FrozenClock()
    cookie = opened(home, clock).make_cookie()
    clock.move(days=29)
    assert opened(home, clock).grant_of(cookie)
    clock.move(days=2)
    assert not opened(home, clock).grant_of(cookie)


@pytest.mark.parametrize("always", [True, False])
def test_where_tokens_are_asked_for_links_work_only_for_the_commands_that_make_them(home, always):
    clock = SystemClock()
    access = opened(home, clock, always_links=always)
    cookie, key = access.make_cookie(), access.make_link_key()
    assert access.grant_of(cookie)
    create_token(home, "ada", "read")
    assert (access.grant_of(cookie) is not None, access.take_link_key(key)) == (always, always)
    assert bool(access.answer("challenge")) == always
