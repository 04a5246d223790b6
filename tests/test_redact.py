"""Secrets are taken out of a text, and nothing else is; in a time that only grows with its length."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.redact import REDACTED, RULES, redact

SECRETS = {
    "openai": "sk-proj-abcDEF1234567890abcdefGHIJ",
    "anthropic": "sk-ant-api03-AAAA-BBBB_cccc1234567890",
    "stripe": "sk_live_0123456789abcdefABCDEF",
    "google": "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "google oauth": "ya29.a0AfH6SMBx0123456789-abcdef",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github fine-grained": "github_pat_11AAAAAAA0123456789_abcdefghijklmnop",
    "gitlab": "glpat-0123456789abcdefghij",
    "slack": "xoxb-123456789012-1234567890123-abcdefghijklmnop",
    "hugging face": "hf_abcdefghijklmnopqrstuvwxyz012345",
    "groq": "gsk_0123456789abcdefghijABCDEFGHIJ",
    "voyage": "pa-0123456789abcdefghijABCDEFGHIJ-klm",
    "npm": "npm_0123456789abcdefghijABCDEFGHIJ012345",
    "sendgrid": "SG.0123456789abcdefghij.0123456789abcdefghijABCDEFGHIJ0123456789abc",
    "telegram bot": "123456789:AAF0123456789abcdefghijklmnopqrstuvw",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "age": "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ",
}
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nabc+/def==\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("around", ["{}", "the key is {}, keep it", "KEY={}\n", '{{"k": "{}"}}', "x?key={}&y=1"])
def test_a_key_is_taken_out_wherever_it_stands(secret, around):
    clean = redact(around.format(secret))
    assert secret not in clean
    assert REDACTED in clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgres://kai:hunter2@db:5432/x", "postgres://kai:[redacted]@db:5432/x"),
        ("redis://:p@ss@cache/0", "redis://:[redacted]@cache/0"),
        ("password: hunter2", "password: [redacted]"),
        ("DB_PASSWORD=correct-horse", "DB_PASSWORD=[redacted]"),
        ('{"password": "my dog Rex", "user": "kai"}', '{"password": "[redacted]", "user": "kai"}'),
        ("the password is hunter22, remember?", "the password is [redacted], remember?"),
        ("token: 9f8e7d6c5b4a", "token: [redacted]"),
        ("api_key = 'abc123def456'", "api_key = '[redacted]'"),
        ("X-Api-Key: 0123abcd", "X-Api-Key: [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "aws_secret_access_key = [redacted]"),
        ("Authorization: Bearer abcdef1234567890", "Authorization: Bearer [redacted]"),
        ("Authorization: Basic a2FpOmh1bnRlcjI=", "Authorization: Basic [redacted]"),
        ("curl -H 'bearer tok.en-123456789'", "curl -H 'bearer [redacted]'"),
        (f"before {PRIVATE_KEY} after", "before [redacted] after"),
        (PRIVATE_KEY.replace("\n", "\\n"), "[redacted]"),
        (PRIVATE_KEY[:60], "[redacted]"),
    ],
)
def test_a_secret_is_taken_out_and_what_it_belongs_to_stays(text, clean):
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "The password: see the fridge.",
        "the password is written on the fridge",
        "token: a unit of text; tokens: 512, max_tokens=4096",
        "monkey: 12345678, the key idea: 3 rooms",
        "token = os.environ['GITHUB_TOKEN']; password=${DB_PASSWORD}; api_key: <your key>",
        "commit 9692da2f3c1b4e5d6a7b8c9d0e1f2a3b4c5d6e7f at https://example.com:8080/a@b",
        "ask-me-anything-about-the-whole-thing, task_test_something_else, bearer of good news",
        "at 12:30 we meet; ratio 3:2; 5f0c1a52-8a1b-4c6e-9d7e-0123456789ab",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert redact(text) == text


HOSTILE = [
    *(sign * 20_000 for rule in RULES for sign in rule.signs),
    *"eyJ sk- :// key= a:@ password= token=' bearer authorization: password-is- pwd_".split(),
    "password is ",
    "-----BEGIN PRIVATE KEY-----",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_takes_more_than_linear_time(text):
    """The same text ten times as long takes ten times as long, not a hundred: with room for a busy machine."""
    short, long = (text * (1 + size // len(text)) for size in (20_000, 200_000))
    redact(short)
    took = [min(_time(one) for _ in range(2)) for one in (short, long)]
    assert took[1] < 40 * took[0] + 0.05


def _time(text: str) -> float:
    started = time.process_time()
    redact(text)
    return time.process_time() - started


@given(st.text(max_size=200), st.sampled_from(sorted(SECRETS.values())), st.text(max_size=200))
def test_a_key_between_any_two_texts_is_taken_out(before, secret, after):
    assert secret not in redact(f"{before} {secret} {after}")


@given(st.text())
def test_redacting_twice_is_redacting_once(text):
    assert redact(redact(text)) == redact(text)
