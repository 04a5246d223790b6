"""Recognises secrets by the text around them: an address, a header, a cookie or a command line."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from kept.base.redact import Span, compiled
from kept.base.values import frozen

_QUOTE = r"(?:\\{0,63}[\"'`])?"
"""A quotation mark with its escapes: JSON inside JSON adds one per level."""
_VARIABLE = r"(?![$<{\[*]|%[A-Za-z(]|\.\.\.)"
"""The name of a variable, or a placeholder, is not a secret."""
_WORD = r"(?:\\(?![nrt\"'])|[^\s\"'`\\])"
_ARGUMENT = rf"{_QUOTE}{_VARIABLE}(?P<secret>{_WORD}{{3,200}})"


@frozen
class Rule:
    keywords: tuple[str, ...]
    """In lower case. Without one of them in a text, the pattern cannot match."""
    pattern: str
    """The group ``secret`` is redacted."""
    check: Callable[[str], bool] | None = None


def _is_userinfo(value: str) -> bool:
    """Return whether a value is base64 of 'user:password', as in the Basic scheme."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _is_cookie_value(value: str) -> bool:
    """Return whether a cookie is a secret: 'theme=dark' is not; a session id is long or has digits."""
    return len(value) >= 16 or (len(value) >= 8 and any(char.isdigit() for char in value))


def _program(names: str, option: str, argument: str = _ARGUMENT) -> str:
    return rf"\b(?:{names})\b[^\n|;&]{{0,200}}?\s{option}{argument}"


_SCHEMES = (
    r"basic|bearer|token|digest|api-?key|key|oauth|ssws|negotiate|ntlm|bot|hawk|dpop|geniekey|splunk|aws4-\S{4,20}"
)

RULES = (
    # addresses
    # A password may hold a slash; digits before a slash are a port.
    Rule(
        ("://",),
        r"://[^\s:/?#@\[\"'<>`]{0,100}:(?![0-9]{1,5}[,/?#])(?![$<{\[*])"
        r"(?P<secret>[^\s/\"'<>`]{1,200}(?=@)|[^\s@\"'<>`]{1,200}(?=@))",
    ),
    Rule(("@",), r"://(?P<secret>(?=[^\s:/?#@]{0,80}[0-9])[^\s:/?#@\[\"'<>`$]{20,200})(?=@)"),
    Rule(
        ("signature=", "sig=", "-token=", "-credential="),
        r"(?i)[?&;](?:x-(?:amz|goog|oss)-(?:signature|security-token|credential)|signature|sig)="
        r"(?P<secret>[^\s&\"'<>`\\]{16,}+)",
    ),
    Rule(("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{10,}+)"),
    Rule(("/api/webhooks/",), r"/api/webhooks/(?P<secret>[0-9]{15,22}/[A-Za-z0-9_-]{40,}+)"),
    Rule((".webhook.office.com",), r"\.webhook\.office\.com/webhookb2/(?P<secret>[A-Za-z0-9@/_-]{30,}+)"),
    Rule(("hooks.zapier.com",), r"hooks\.zapier\.com/hooks/catch/(?P<secret>[A-Za-z0-9/_-]{8,}+)"),
    Rule(("maker.ifttt.com",), r"maker\.ifttt\.com/\S{1,80}/key/(?P<secret>[A-Za-z0-9_-]{10,}+)"),
    # headers
    Rule(
        ("authorization",),
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=,]\s{{0,3}}{_QUOTE}(?:{_SCHEMES})"
        rf"\s{{1,3}}{_VARIABLE}(?P<secret>[^\s\"'`,\\][^\r\n\"'`\\]{{5,}}+)",
    ),
    Rule(
        ("authorization",),
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}{_VARIABLE}"
        r"(?P<secret>(?=[^\s0-9]{0,80}[0-9])[^\s\"'`,\\]{8,}+)",
    ),
    Rule(
        ("auth",),
        rf"(?i)\b_?auth{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}(?P<secret>[A-Za-z0-9+/]{{8,}}+={{0,2}})",
        _is_userinfo,
    ),
    Rule(("auth plain",), r"(?i)\bauth plain (?P<secret>[A-Za-z0-9+/]{8,}+={0,2})"),
    # commands
    Rule(("sshpass",), _program("sshpass", r"-p\s?")),
    Rule(("mysql", "mariadb"), _program(r"mysql\w{0,12}|mariadb(?:-\w{1,12})?", r"-p(?!\s)")),
    Rule(
        ("curl", "wget", "http -"),
        _program(
            "curl|wget|https?", r"(?:-u|--user|-a|--proxy-user)[ =]?", rf"{_QUOTE}[^\s:\"'`$]{{1,100}}:{_ARGUMENT}"
        ),
    ),
    Rule(("redis-cli",), _program("redis-cli", r"(?:-a|--pass)\s")),
    Rule(
        ("login", "helm", "mongo"),
        _program(r"docker login|podman login|helm|az login|mongo\w{0,8}", r"-p\s"),
    ),
    Rule(("smbclient", "rpcclient", "cifs"), r"\s-U\s{0,2}\S{1,80}%(?P<secret>[^\s\"']{3,100})"),
    Rule(("ldap",), _program(r"ldap\w{3,10}", r"-w\s")),
    Rule(("zip", "7z", "sqlcmd", "bcp"), _program("unzip|zip|7z|sqlcmd|bcp", r"-(?:P\s|p(?!\s))")),
    Rule(("htpasswd",), r"\bhtpasswd\s+-\w{0,4}b\w{0,4}\s+\S{1,200}\s+\S{1,80}\s+" + _ARGUMENT),
    # others
    Rule(
        ("bearer",),
        rf"(?i)\bbearer\s{{1,3}}{_QUOTE}(?P<secret>(?=[A-Za-z._~+/=-]{{0,80}}[0-9])[A-Za-z0-9._~+/=-]{{10,}}+)",
    ),
    Rule(("basic ",), r"(?i)\bbasic (?P<secret>[A-Za-z0-9+/]{8,}+={0,2})", _is_userinfo),
    Rule(("net user",), r"(?i)\bnet user\s+\S{1,80}\s+(?!/)" + _ARGUMENT),
    Rule(("pass:",), r"(?i)(?:-pass(?:in|out)?\s|[\s/-])pass:(?P<secret>[^\s\"'`\\]{4,200})(?<![.,!?])"),
    Rule(("identified",), rf"(?i)\bidentified\s+(?:with\s+\S{{1,60}}\s+)?by\s+{_ARGUMENT}"),
    Rule(
        (":5432:", ":*:"),  # .pgpass
        r"(?m)^[\w.*-]{1,100}:(?:[0-9]{2,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<secret>\S{3,100})$",
    ),
)

_COOKIES = (
    rf"(?i)(?:\b(?:set-)?cookies?{_QUOTE}\s{{0,3}}[:=,]|--cookie[\s=]|\bcurl\b[^\n|;]{{0,200}}?\s-b\s)\s{{0,3}}{_QUOTE}"
    r"(?P<pairs>[^\s=;:\"'`\\]{1,80}=[^\r\n\"'`\\]{1,4000}+)"
)
_PAIR = r"[^\s=;]{1,80}=(?P<secret>[^\s;,]{1,4000}+)"


def find_by_surroundings(text: str, lower: str) -> Iterator[Span]:
    for rule in RULES:
        if any(keyword in lower for keyword in rule.keywords):
            yield from _find_in(text, rule)
    if "cookie" in lower or "curl" in lower:
        for header in compiled(_COOKIES).finditer(text):
            yield from _find_cookies(text, header)


def _find_in(text: str, rule: Rule) -> Iterator[Span]:
    for match in compiled(rule.pattern).finditer(text):
        if rule.check is None or rule.check(match["secret"]):
            yield match.span("secret")


def _find_cookies(text: str, header: re.Match[str]) -> Iterator[Span]:
    for pair in compiled(_PAIR).finditer(text, *header.span("pairs")):
        if _is_cookie_value(pair["secret"]):
            yield pair.span("secret")
