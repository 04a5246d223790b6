"""Tokens: created once, hashed, revoked at once, and never let in by accident."""

import datetime as dt
import json
import subprocess

import pytest

from kept.base.clock import SystemClock
from kept.base.net.serving import RateLimiter
from kept.errors import UsageError
from kept.server.tokens import KnownTokens, make_token, token_book
from kept.storage.files.file_storage import FileStorage
from kept.testing import FrozenClock
from tests.support.commands import KEPT

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def watching(home, clock=None):
    return KnownTokens(FileStorage(str(home)), clock or SystemClock(), RateLimiter(0, 1))


def add(home, name="ci", *scopes, **options):
    token, secret = make_token(name, scopes or ("read",), NOW, **options)
    token_book(FileStorage(str(home))).change(lambda book: book.with_token(token, NOW))
    return secret


def test_a_token_is_shown_once_and_its_file_has_only_a_hash(kept, home):
    created = kept("token", "create", "ci", "--scope", "read", "--scope", "review", "--expires", "90d")
    secret = created.out.strip()
    assert (created.code, secret.startswith("kept_"), len(secret)) == (0, True, 48)
    file = home / "tokens.json"
    assert secret not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert secret not in kept("token", "list", "--json").out + kept("token", "list").out
    watch = watching(home)
    grant = watch.find(secret.encode())
    assert (grant.name, grant.scopes) == ("ci", {"read", "review"})
    assert watching(home, FrozenClock(dt.datetime.now(dt.UTC) + dt.timedelta(days=91))).find(secret.encode()) is None


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["create", "ci"], 2),
        (["create", "two words", "--scope", "read"], 2),
        (["create", "ci", "--scope", "root"], 2),
        (["create", "ci", "--scope", "read", "--expires", "yesterday"], 2),
        (["create", "ci", "--scope", "read", "--expires", "2020-01-01"], 2),
        (["create", "ci", "--scope", "read", "--for-agent", "nobody"], 3),
        (["create", "ci", "--scope", "read", "--for-person", "nobody"], 2),
        (["create", "ci", "--scope", "admin", "--for-person", "http:ada"], 2),
        (["revoke", "ci"], 3),
    ],
)
def test_a_mistake_is_one_line_and_creates_no_token(kept, home, args, code):
    ended = kept("token", *args)
    assert (ended.code, ended.err.count("\n"), ended.out) == (code, 1, "")
    assert not (home / "tokens.json").exists()


def test_a_running_process_sees_a_revocation_with_the_next_request(kept, home):
    secret = add(home).encode()
    watch = watching(home)
    assert watch.find(secret)
    assert kept("token", "revoke", "ci").code == 0
    assert watch.find(secret) is None
    again = add(home)  # the name is free again
    assert watch.find(again.encode())
    assert watch.find(secret) is None
    with pytest.raises(UsageError, match="already"):
        add(home)


def test_tokens_created_at_the_same_time_are_all_kept(home, environment):
    running = [
        subprocess.Popen(
            [KEPT, "token", "create", f"t{number}", "--scope", "read"], env=environment, stdout=-1, stderr=-1
        )
        for number in range(4)
    ]
    secrets = [process.communicate(timeout=60)[0].strip() for process in running]
    watch = watching(home)
    grants = [watch.find(secret) for secret in secrets]
    assert [grant.name for grant in grants if grant] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: b"",
        lambda tree: b"[]",
        lambda tree: b"\xff{",
        lambda tree: b"[" * 100_000,
        lambda tree: json.dumps({**tree, "version": 3}).encode(),
        *(
            lambda tree, name=name, value=value: json.dumps(
                {**tree, "tokens": [{**tree["tokens"][0], name: value}]}
            ).encode()
            for name, value in [("digest", ""), ("scopes", []), ("expires", "soon"), ("person", ""), ("id", None)]
        ),
        lambda tree: json.dumps(
            {**tree, "tokens": [{k: v for k, v in tree["tokens"][0].items() if k != "person"}]}
        ).encode(),
        lambda tree: json.dumps({**tree, "tokens": [None, 5, []]}).encode(),
    ],
)
def test_a_damaged_file_lets_nobody_in(home, damage):
    secret = add(home, "ada", "read", person="http:ada").encode()
    file = home / "tokens.json"
    file.write_bytes(damage(json.loads(file.read_bytes())))
    watch = watching(home)
    assert watch.find(secret) is None
    assert watch.is_required  # so a server asks for a token


def test_a_file_that_goes_away_lets_nobody_in(home):
    secret = add(home).encode()
    watch = watching(home)
    assert watch.find(secret)
    (home / "tokens.json").unlink()
    assert watch.find(secret) is None
    assert watch.is_required
    assert not watching(home / "elsewhere").is_required
