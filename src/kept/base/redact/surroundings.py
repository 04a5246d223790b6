"""Recognises secrets by the text around them: an address, a header, a cookie or a command line."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from kept.base.redact import Span, compiled

_QUOTE = r"(?:\\{0,63}[\"'`])?"
"""A quotation mark with its escapes: JSON inside JSON adds one per level."""
_VARIABLE = r"(?![$<{\[*]|%[A-Za-z(]|\.\.\.)"
"""The name of a variable, or a placeholder, is not a secret."""
_WORD = r"(?:\\(?![nrt\"'])|[^\s\"'`\\])"
_ARGUMENT = rf"{_QUOTE}{_VARIABLE}(?P<secret>{_WORD}{{3,200}})"


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

RULES: tuple[tuple[str, str], ...] = (
    # addresses
    # A password may hold a slash; digits before a slash are a port.
    (
        "://",
        r"://[^\s:/?#@\[\"'<>`]{0,100}:(?![0-9]{1,5}[,/?#])(?![$<{\[*])"
        r"(?P<secret>[^\s/\"'<>`]{1,200}(?=@)|[^\s@\"'<>`]{1,200}(?=@))",
    ),
    ("@", r"://(?P<secret>(?=[^\s:/?#@]{0,80}[0-9])[^\s:/?#@\[\"'<>`$]{20,200})(?=@)"),
    (
        "signature=|sig=|-token=|-credential=",
        r"(?i)[?&;](?:x-(?:amz|goog|oss)-(?:signature|security-token|credential)|signature|sig)="
        r"(?P<secret>[^\s&\"'<>`\\]{16,}+)",
    ),
    ("hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{10,}+)"),
    ("/api/webhooks/", r"/api/webhooks/(?P<secret>[0-9]{15,22}/[A-Za-z0-9_-]{40,}+)"),
    (".webhook.office.com", r"\.webhook\.office\.com/webhookb2/(?P<secret>[A-Za-z0-9@/_-]{30,}+)"),
    ("hooks.zapier.com", r"hooks\.zapier\.com/hooks/catch/(?P<secret>[A-Za-z0-9/_-]{8,}+)"),
    ("maker.ifttt.com", r"maker\.ifttt\.com/\S{1,80}/key/(?P<secret>[A-Za-z0-9_-]{10,}+)"),
    # headers
    (
        "authorization",
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=,]\s{{0,3}}{_QUOTE}(?:{_SCHEMES})"
        rf"\s{{1,3}}{_VARIABLE}(?P<secret>[^\s\"'`,\\][^\r\n\"'`\\]{{5,}}+)",
    ),
    (
        "authorization",
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}{_VARIABLE}"
        r"(?P<secret>(?=[^\s0-9]{0,80}[0-9])[^\s\"'`,\\]{8,}+)",
    ),
    (
        "auth",
        rf"(?i)\b_?auth{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}(?P<userinfo>[A-Za-z0-9+/]{{8,}}+={{0,2}})",
    ),
    ("auth plain", r"(?i)\bauth plain (?P<secret>[A-Za-z0-9+/]{8,}+={0,2})"),
    # commands
    ("sshpass", _program("sshpass", r"-p\s?")),
    ("mysql|mariadb", _program(r"mysql\w{0,12}|mariadb(?:-\w{1,12})?", r"-p(?!\s)")),
    (
        "curl|wget|http -",
        _program(
            "curl|wget|https?", r"(?:-u|--user|-a|--proxy-user)[ =]?", rf"{_QUOTE}[^\s:\"'`$]{{1,100}}:{_ARGUMENT}"
        ),
    ),
    ("redis-cli", _program("redis-cli", r"(?:-a|--pass)\s")),
    (
        "login|helm|mongo",
        _program(r"docker login|podman login|helm|az login|mongo\w{0,8}", r"-p\s"),
    ),
    ("smbclient|rpcclient|cifs", r"\s-U\s{0,2}\S{1,80}%(?P<secret>[^\s\"']{3,100})"),
    ("ldap", _program(r"ldap\w{3,10}", r"-w\s")),
    ("zip|7z|sqlcmd|bcp", _program("unzip|zip|7z|sqlcmd|bcp", r"-(?:P\s|p(?!\s))")),
    ("htpasswd", r"\bhtpasswd\s+-\w{0,4}b\w{0,4}\s+\S{1,200}\s+\S{1,80}\s+" + _ARGUMENT),
    # others
    (
        "bearer",
        rf"(?i)\bbearer\s{{1,3}}{_QUOTE}(?P<secret>(?=[A-Za-z._~+/=-]{{0,80}}[0-9])[A-Za-z0-9._~+/=-]{{10,}}+)",
    ),
    ("basic ", r"(?i)\bbasic (?P<userinfo>[A-Za-z0-9+/]{8,}+={0,2})"),
    ("net user", r"(?i)\bnet user\s+\S{1,80}\s+(?!/)" + _ARGUMENT),
    ("pass:", r"(?i)(?:-pass(?:in|out)?\s|[\s/-])pass:(?P<secret>[^\s\"'`\\]{4,200})(?<![.,!?])"),
    ("identified", rf"(?i)\bidentified\s+(?:with\s+\S{{1,60}}\s+)?by\s+{_ARGUMENT}"),
    (
        ":5432:|:*:",  # .pgpass
        r"(?m)^[\w.*-]{1,100}:(?:[0-9]{2,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<secret>\S{3,100})$",
    ),
)
"""Texts in lower case without which the pattern cannot match, and the pattern. Its named group is redacted."""

_COOKIES = (
    rf"(?i)(?:\b(?:set-)?cookies?{_QUOTE}\s{{0,3}}[:=,]|--cookie[\s=]|\bcurl\b[^\n|;]{{0,200}}?\s-b\s)\s{{0,3}}{_QUOTE}"
    r"(?P<pairs>[^\s=;:\"'`\\]{1,80}=[^\r\n\"'`\\]{1,4000}+)"
)
_PAIR = r"[^\s=;]{1,80}=(?P<secret>[^\s;,]{1,4000}+)"


def find_by_surroundings(text: str, lower: str) -> Iterator[Span]:
    for keywords, pattern in RULES:
        if any(keyword in lower for keyword in keywords.split("|")):
            for match in compiled(pattern).finditer(text):
                name = match.lastgroup or ""
                if name == "secret" or _is_userinfo(match[name]):
                    yield match.span(name)
    if "cookie" in lower or "curl" in lower:
        for header in compiled(_COOKIES).finditer(text):
            for pair in compiled(_PAIR).finditer(text, *header.span("pairs")):
                if _is_cookie_value(pair["secret"]):
                    yield pair.span("secret")
