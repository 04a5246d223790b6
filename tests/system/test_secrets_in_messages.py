"""No message, traceback or log repeats a key: not of the settings, and not one that looks like one."""

import pytest

from tests.support.chat_server import Fails, ModelServer
from tests.support.commands import run_python

KEY = "correct-horse-battery-staple"
"""Looks like no key, so only the settings tell that it is one."""
LOOKS_LIKE_ONE = "sk-proj-" + "a1B2c3D4" * 4


@pytest.mark.parametrize("more", [[], ["--debug"]])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_provider_that_repeats_the_key_does_not_get_it_shown(kept, more, as_json):
    with ModelServer() as server:
        server.otherwise = Fails(401, {"error": {"message": f"Not a key: {KEY}, nor {LOOKS_LIKE_ONE}"}})
        chosen = {"provider": "openai", "name": "x", "base_url": server.openai_url, "api_key": KEY}
        options = [part for name, value in chosen.items() for part in ("--set", f"model.{name}={value}")]
        got = kept(*more, *options, "chat", "-m", "Hello", *as_json)
    assert got.code != 0
    assert ("Traceback" in got.err) == bool(more)
    shown = got.out + got.err
    assert "[redacted]" in shown
    assert KEY not in shown
    assert LOOKS_LIKE_ONE not in shown


def test_logs_of_libraries_do_not_show_the_token_of_a_bot(environment):
    token = "123456789" + ":AA" + "bC3dE4f" * 5
    program = (
        "import logging; from kept.cli.output import guard_streams; from kept.cli.output import log_to_stderr\n"
        "guard_streams(); log_to_stderr(); log = logging.getLogger('httpx')\n"
        f"log.error('POST https://api.telegram.org/bot%s/getMe \\x1b[2J', {token!r})\n"
        f"try: raise ValueError('https://api.telegram.org/bot{token}/getMe')\n"
        "except ValueError: log.exception('failed')\n"
    )
    ended = run_python(program, env=environment)
    assert ended.stderr.count("/bot[redacted]/getMe") == 2
    assert token not in ended.stderr
    assert "\x1b" not in ended.stderr
