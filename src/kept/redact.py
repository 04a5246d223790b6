"""Taking secrets out of a text before it is indexed or sent away.

A scanner for repositories (detect-secrets was looked at) says which line of a file has a secret, not where the secret
begins and ends, and knows little of the keys that people paste into a chat; so the patterns are our own. Each has signs
that are looked for first: a text without any of them costs a few plain searches, and no pattern is compiled.

Every pattern is linear: it begins where no other match could have begun, and what it repeats is bounded or possessive.
"""

from __future__ import annotations

import re
from functools import cache

from kept.values import frozen

REDACTION_VERSION = 1
"""Raised when more is taken out, so that existing indexes are rebuilt without it."""

REDACTED = "[redacted]"


@frozen
class Rule:
    signs: tuple[str, ...]
    """In lower case. Without one of them in a text, the pattern cannot match."""
    pattern: str
    """What is in the group ``keep`` stays; the rest of a match is taken out."""


def redact(text: str) -> str:
    """The same text with '[redacted]' wherever something looks like a secret."""
    lower = text.lower()
    for sign, pattern in _BY_SIGN:
        if sign in lower:
            text = _compiled(pattern).sub(_replacement, text)
    return _redact_assignments(text) if _has_sign(lower) else text


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _replacement(found: re.Match[str]) -> str:
    return f"{found.groupdict().get('keep', '')}{REDACTED}"


_START = r"(?<![A-Za-z0-9_-])"
"""A token begins where no letter, digit or joining sign stands before it."""

_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd"
    r"|secret|credentials?|token(?!s|iz)"
    r"|(?:api|access|account|auth|encryption|license|master|private|secret|shared|signing|subscription)[ _-]?key"
)
_NAME_SIGNS = ("pass", "pwd", "secret", "credential", "token", "key")
_NAME_CHARS = 64
_SEPARATOR = r":=|=>|[=:]| (?:is|was|now) "
_NAME = rf"(?i)(?P<word>{_NAMES})[A-Za-z0-9_]{{0,24}}[\"'`*]{{0,3}}\s{{0,3}}\Z"
_NO_SECRET = (
    r"(?!\[redacted|[$<%{]|(?:os|process|env|config|settings|self|getenv|getpass)\b[.(\[]|(?:none|null|true|false)\b)"
)
"""The name of a variable, or nothing, is no secret."""
_WITH_DIGIT = r"(?=[^\s0-9]{0,80}[0-9])"
_QUOTED = rf"(?i)\s{{0,3}}(?P<quote>[\"'`]){_NO_SECRET}(?P<value>(?:(?!(?P=quote))[^\n]){{3,500}})"
_BARE = rf"(?i)\s{{0,3}}{_NO_SECRET}(?P<value>[^\s\"'`,;]{{4,500}}+)"
_BARE_WITH_DIGIT = rf"(?i)\s{{0,3}}[\"'`]?{_NO_SECRET}(?P<value>{_WITH_DIGIT}[^\s\"'`,;&]{{5,500}}+)"

RULES: tuple[Rule, ...] = (
    Rule(
        ("private key",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+(?:-----END [^-\n]{0,60}-----)?",
    ),
    Rule(("://",), r"(?P<keep>://[^\s:/?#@]{0,100}:)[^\s/]{1,200}(?=@)"),
    Rule(
        ("authorization",),
        r"(?i)(?P<keep>authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:[a-z]{2,12}\s{1,3})?)[^\s\"',]{6,}+",
    ),
    Rule(("bearer",), r"(?i)(?P<keep>\bbearer\s{1,3})(?=[^\s]{0,80}[0-9._-])[A-Za-z0-9._~+/=-]{10,}+"),
    # Keys of providers, by what they begin with.
    Rule(("sk-", "pk-"), _START + r"[sp]k-[A-Za-z0-9_-]{16,}+"),
    Rule(("_live_", "_test_"), _START + r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}+"),
    Rule(("whsec_",), _START + r"whsec_[A-Za-z0-9+/=]{16,}+"),
    Rule(("aiza", "gocspx-", "ya29."), _START + r"(?:AIza|GOCSPX-|ya29\.)[A-Za-z0-9_.-]{20,}+"),
    Rule(
        ("akia", "asia", "abia", "acca", "aroa", "aida"),
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    Rule(
        ("gho_", "ghp_", "ghr_", "ghs_", "ghu_", "github_pat_"), _START + r"(?:gh[oprsu]|github_pat)_[A-Za-z0-9_]{20,}+"
    ),
    Rule(("glpat-", "gldt-", "glrt-"), _START + r"gl(?:pat|dt|rt)-[A-Za-z0-9_.-]{15,}+"),
    Rule(("xox", "xapp-"), _START + r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+"),
    Rule(("hooks.slack.com",), r"(?P<keep>hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]{10,}+"),
    Rule(
        ("hf_", "gsk_", "npm_", "r8_", "dckr_pat_", "lsv2_", "tvly-", "xai-", "pplx-", "nvapi-", "pa-", "pypi-"),
        _START
        + r"(?:hf_|gsk_|npm_|r8_|dckr_pat_|lsv2_|tvly-|xai-|pplx-|nvapi-|pa-|pypi-)"
        + r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{24,}+",
    ),
    Rule(("sg.",), _START + r"SG\.[A-Za-z0-9_-]{16,80}+\.[A-Za-z0-9_-]{16,}+"),
    Rule(
        ("dop_v1_", "shpat_", "shpss_", "ntn_", "secret_"),
        _START + r"(?:dop_v1|shpat|shpss|ntn|secret)_[A-Za-z0-9]{24,}+",
    ),
    Rule(("age-secret-key-",), r"AGE-SECRET-KEY-[A-Z0-9]{20,}+"),
    Rule((":aa",), r"(?<![A-Za-z0-9])[0-9]{7,12}:AA[A-Za-z0-9_-]{30,}+"),
    Rule(("eyj",), _START + r"eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?"),
)


_BY_SIGN = tuple((sign, rule.pattern) for rule in RULES for sign in rule.signs)


def _redact_assignments(text: str) -> str:
    """What follows 'password=', 'token:' and the like. Looked for from the separator back, which is the rarer."""
    parts: list[str] = []
    done = 0
    for separator in _compiled(_SEPARATOR).finditer(text):
        start = max(done, separator.start() - _NAME_CHARS)
        if start > separator.start() or not _has_sign(text[start : separator.start()].lower()):
            continue
        name = _compiled(_NAME).search(text, start, separator.start())
        value = _find_value(text, separator, name["word"].lower()) if name else None
        if value:
            parts += (text[done : value.start("value")], REDACTED)
            done = value.end()
    return "".join((*parts, text[done:])) if parts else text


def _has_sign(lower: str) -> bool:
    return any(sign in lower for sign in _NAME_SIGNS)


def _find_value(text: str, separator: re.Match[str], name: str) -> re.Match[str] | None:
    """A password may be any word; whatever else is called a token or a key is a secret if a digit is in it, or quotes
    are around it."""
    if separator[0][0] == " ":
        patterns = [_BARE_WITH_DIGIT] if name.startswith("p") else []
    else:
        patterns = [_QUOTED, _BARE if name.startswith("pass") or name == "pwd" else _BARE_WITH_DIGIT]
    found = (_compiled(pattern).match(text, separator.end()) for pattern in patterns)
    return next((one for one in found if one), None)
