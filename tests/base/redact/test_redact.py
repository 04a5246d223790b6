"""Secrets are taken out of a text, and nothing else is; in a time that only grows with its length."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.base.redact import OTHERS, REDACTED, STEMS, Redactor, redact
from kept.base.redact.formats import PREFIXES, SHAPES
from kept.base.redact.surroundings import RULES
from tests.support.redaction_cases import INNOCUOUS, SECRETS

LEAST_FOUND, MOST_FALSE = 0.9, 0.02
KEYS = sorted({case.secret for case in SECRETS if case.text == case.secret})
PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nabc+/def==\n-----END RSA PRIVATE KEY-----"


def test_most_secrets_of_every_kind_are_found():
    missed = [case for case in SECRETS if case.secret in redact(case.text)]
    assert len(SECRETS) >= 150
    assert 1 - len(missed) / len(SECRETS) >= LEAST_FOUND, missed


def test_hardly_anything_else_is_taken_for_a_secret():
    false = [text for text in INNOCUOUS if redact(text) != text]
    assert len(INNOCUOUS) >= 150
    assert len(false) / len(INNOCUOUS) <= MOST_FALSE, false


RANDOM = "aB3dE5fG7hJ9kL2mN4pQ6rS8tU1vW3xY5zA7"


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mghp_{}\x1b[0m",
        "\x1b[1mpassword\x1b[0m: \x1b[32m{}\x1b[0m",
        "**Password:** `Tbdv{}`",
        "os.environ['STRIPE_SECRET'] = '{}'",
        'std::env::set_var("OPENAI_API_KEY", "{}");',
        "| user | password |\n|---|---|\n| ada | x1y2z3 |\n| joe | {} |",
        "password | user\n{} | joe",
        "user,password\nada,x1y2z3\njoe,{}\n",
        '"user";"api token"\n"joe";"{}"',
        "<key>password</key><string>{}</string>",
        "<key>password</key>\n  <string>{}</string>",
        "phc_{}",
        "joe:$apr1$abcdefgh${}",
        "Enter passphrase for key: {}",
        "Password for 'https://joe@example.org': {}",
        "pass\u200bword: {}",
        "to\u00adken={}",
        "ｐａｓｓｗｏｒｄ：{}",
    ],
)
def test_a_secret_is_found_as_a_reader_sees_it(text):
    assert REDACTED in redact(text.format(RANDOM))
    assert RANDOM not in redact(text.format(RANDOM))


def test_a_key_that_was_broken_over_two_lines_is_taken_out_whole():
    assert redact(f"the key\nghp_{RANDOM[:16]}\n{RANDOM[16:]}\nis old") == f"the key\n{REDACTED}\nis old"


@pytest.mark.parametrize(
    "text",
    [
        "| field | token |\n|---|---|\n| max | 4096-8192 |",
        "| user | password |\n|---|---|\n| ada | see the vault |\n| joe | 2026-11-18 |",
        "We need user, password\nand email, 2fa code",
        'form.setError("password", "at least 8 characters")',
        '["password", "avatar2x"]',
        "config['password'] == other",
        "api_key = os.environ['API_KEY']",
        "the password for wifi: ask Ann tomorrow",
        "password: putyourpasswordhere",
        "api_key: addKeyHere",
        "\x1b[31mError\x1b[0m: token count: 4096",
        "test_integration_suite\ntest_another_longer_name_1",
        "sk-learn-contrib-thing\nanother-package-name12",
        "ｆｕｌｌ ｗｉｄｔｈ password policy",
    ],
)
def test_what_only_looks_like_it_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgres://kai:hunter2@db:5432/x", "postgres://kai:[redacted]@db:5432/x"),
        ("postgres://kai:hun/ter2@db:5432/x", "postgres://kai:[redacted]@db:5432/x"),
        ("redis://:p@ss@cache/0", "redis://:[redacted]@cache/0"),
        ("password: hunter2", "password: [redacted]"),
        ("DB_PASSWORD=correct-horse", "DB_PASSWORD=[redacted]"),
        ('{"password": "my dog Rex", "user": "kai"}', '{"password": "[redacted]", "user": "kai"}'),
        (
            '{\\"password\\":\\"hunter2\\",\\"user\\":\\"kai\\"}',
            '{\\"password\\":\\"[redacted]\\",\\"user\\":\\"kai\\"}',
        ),
        ("the password is hunter22, remember?", "the password is [redacted], remember?"),
        ("token: 9f8e7d6c5b4a", "token: [redacted]"),
        ("api_key = 'abc123def456'", "api_key = '[redacted]'"),
        ("X-Api-Key: 0123abcd", "X-Api-Key: [redacted]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "aws_secret_access_key = [redacted]"),
        ("Authorization: Bearer abcdef1234567890", "Authorization: Bearer [redacted]"),
        ("Authorization: Basic a2FpOmh1bnRlcjI=", "Authorization: Basic [redacted]"),
        ("curl -H 'bearer tok.en-123456789'", "curl -H 'bearer [redacted]'"),
        ("Set-Cookie: sid=abc123def456; Path=/", "Set-Cookie: sid=[redacted]; Path=/"),
        ("https://x.example/?token=abc123def456&page=2", "https://x.example/?token=[redacted]&page=2"),
        (f"before {PRIVATE_KEY} after", "before [redacted] after"),
        (PRIVATE_KEY.replace("\n", "\\n"), "[redacted]"),
        (PRIVATE_KEY[:60], "[redacted]"),
        ("İpassword: hunter2", "İpassword: [redacted]"),
    ],
)
def test_a_secret_is_taken_out_and_what_it_belongs_to_stays(text, clean):
    assert redact(text) == clean


@pytest.mark.parametrize("depth", range(7))
def test_json_inside_of_json_hides_nothing(depth):
    text = json.dumps({"user": "kai", "password": 'a "quoted" \\ pass9'})
    for _ in range(depth):
        text = json.dumps({"result": text, "port": 5432})
    clean = redact(text)
    assert "pass9" not in clean
    assert "quoted" not in clean
    assert "kai" in clean


@pytest.mark.parametrize("key", KEYS)
def test_no_cut_leaves_the_beginning_of_a_key(key):
    text = f"{'word ' * 8}{key} and more"
    for limit in range(38, 44 + min(len(key), 40)):
        assert key[:8] not in redact(text, limit=limit)
    assert redact(text, limit=20) == text[:20]


def test_known_secrets_are_taken_out_of_messages_in_every_form():
    hide = Redactor(['open "sesame"/1', "hunter"])
    for form in ('open "sesame"/1', "open%20%22sesame%22%2F1", 'open \\"sesame\\"/1', "hunter"):
        assert hide(f"refused: {form}!") == "refused: [redacted]!"
    assert hide("Incorrect API key provided: sk-abcd***wxyz.") == "Incorrect API key provided: [redacted]."


HOSTILE = [
    *PREFIXES,
    *(keyword for keyword, _, _ in SHAPES),
    *(keyword for keywords, _ in RULES for keyword in keywords.split("|")),
    *STEMS,
    *OTHERS,
    *(f"{stem}: " for stem in STEMS),
    *"eyJ sk- :// key= a:@ password= token=' bearer authorization: password-is- pwd_ cookie:a= -p".split(),
    "password is ",
    "password:\n    ",
    'password":\\\\\\\\"',
    "-----BEGIN PRIVATE KEY-----",
    "curl -u a:",
    "mysql -p",
    "Cookie: a=b; ",
    "a" * 16 + ".",
    "://a:" + "/" * 50,
    "authorization: basic " + "a" * 9,
]


@pytest.mark.parametrize("part", range(8))
def test_no_text_takes_more_than_linear_time(part):
    """The same text ten times as long takes ten times as long, not a hundred: with room for a busy machine."""
    for text in HOSTILE[part::8]:
        short, long = (text * (1 + size // len(text)) for size in (1_500, 15_000))
        assert _time(long) < 40 * min(_time(short), _time(short)) + 0.05, text


def _time(text: str) -> float:
    started = time.process_time()
    redact(text)
    return time.process_time() - started


@given(st.text(max_size=200), st.sampled_from(KEYS), st.text(max_size=200))
def test_a_key_between_any_two_texts_is_taken_out(before, secret, after):
    assert secret not in redact(f"{before} {secret} {after}")


@given(st.text())
def test_redacting_twice_is_redacting_once(text):
    assert redact(redact(text)) == redact(text)
