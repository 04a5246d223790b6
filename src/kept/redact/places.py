"""Secrets that are recognised by where they stand: in an address, a header, a cookie or a command line."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator

from kept.redact.spans import Span, compiled
from kept.values import frozen

_QUOTE = r"(?:\\{0,63}[\"'`])?"
"""A quotation mark, escaped as often as JSON was put into JSON."""
_VARIABLE = r"(?![$<{\[*]|%[A-Za-z(]|\.\.\.)"
"""The name of a variable, or a placeholder, is no secret."""
_WORD = r"(?:\\(?![nrt\"'])|[^\s\"'`\\])"
_ARGUMENT = rf"{_QUOTE}{_VARIABLE}(?P<secret>{_WORD}{{3,200}})"


@frozen
class Place:
    signs: tuple[str, ...]
    """In lower case. Without one of them in a text, the pattern cannot match."""
    pattern: str
    """What the group ``secret`` matches is taken out."""
    check: Callable[[str], bool] | None = None


def _is_userinfo(value: str) -> bool:
    """Whether it is base64 of 'user:password', as of the Basic scheme."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _is_cookie_value(value: str) -> bool:
    """'theme=dark' is no secret; a session's id is long, or has digits in it."""
    return len(value) >= 16 or (len(value) >= 8 and any(sign.isdigit() for sign in value))


def _program(names: str, option: str, argument: str = _ARGUMENT) -> str:
    return rf"\b(?:{names})\b[^\n|;&]{{0,200}}?\s{option}{argument}"


_ADDRESSES = (
    # A password may hold a slash; digits before a slash are a port.
    Place(
        ("://",),
        r"://[^\s:/?#@\[\"'<>`]{0,100}:(?![0-9]{1,5}[,/?#])(?![$<{\[*])"
        r"(?P<secret>[^\s/\"'<>`]{1,200}(?=@)|[^\s@\"'<>`]{1,200}(?=@))",
    ),
    Place(("@",), r"://(?P<secret>(?=[^\s:/?#@]{0,80}[0-9])[^\s:/?#@\[\"'<>`$]{20,200})(?=@)"),
    Place(
        ("signature=", "sig=", "-token=", "-credential="),
        r"(?i)[?&;](?:x-(?:amz|goog|oss)-(?:signature|security-token|credential)|signature|sig)="
        r"(?P<secret>[^\s&\"'<>`\\]{16,}+)",
    ),
    Place(("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/_-]{10,}+)"),
    Place(("/api/webhooks/",), r"/api/webhooks/(?P<secret>[0-9]{15,22}/[A-Za-z0-9_-]{40,}+)"),
    Place((".webhook.office.com",), r"\.webhook\.office\.com/webhookb2/(?P<secret>[A-Za-z0-9@/_-]{30,}+)"),
    Place(("hooks.zapier.com",), r"hooks\.zapier\.com/hooks/catch/(?P<secret>[A-Za-z0-9/_-]{8,}+)"),
    Place(("maker.ifttt.com",), r"maker\.ifttt\.com/\S{1,80}/key/(?P<secret>[A-Za-z0-9_-]{10,}+)"),
)
_SCHEMES = (
    r"basic|bearer|token|digest|api-?key|key|oauth|ssws|negotiate|ntlm|bot|hawk|dpop|geniekey|splunk|aws4-\S{4,20}"
)
_HEADERS = (
    Place(
        ("authorization",),
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=,]\s{{0,3}}{_QUOTE}(?:{_SCHEMES})"
        rf"\s{{1,3}}{_VARIABLE}(?P<secret>[^\s\"'`,\\][^\r\n\"'`\\]{{5,}}+)",
    ),
    Place(
        ("authorization",),
        rf"(?i)authorization{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}{_VARIABLE}"
        r"(?P<secret>(?=[^\s0-9]{0,80}[0-9])[^\s\"'`,\\]{8,}+)",
    ),
    Place(
        ("auth",),
        rf"(?i)\b_?auth{_QUOTE}\s{{0,3}}[:=]\s{{0,3}}{_QUOTE}(?P<secret>[A-Za-z0-9+/]{{8,}}+={{0,2}})",
        _is_userinfo,
    ),
    Place(("auth plain",), r"(?i)\bauth plain (?P<secret>[A-Za-z0-9+/]{8,}+={0,2})"),
)
_COMMANDS = (
    Place(("sshpass",), _program("sshpass", r"-p\s?")),
    Place(("mysql", "mariadb"), _program(r"mysql\w{0,12}|mariadb(?:-\w{1,12})?", r"-p(?!\s)")),
    Place(
        ("curl", "wget", "http -"),
        _program(
            "curl|wget|https?", r"(?:-u|--user|-a|--proxy-user)[ =]?", rf"{_QUOTE}[^\s:\"'`$]{{1,100}}:{_ARGUMENT}"
        ),
    ),
    Place(("redis-cli",), _program("redis-cli", r"(?:-a|--pass)\s")),
    Place(
        ("login", "helm", "mongo"),
        _program(r"docker login|podman login|helm|az login|mongo\w{0,8}", r"-p\s"),
    ),
    Place(("smbclient", "rpcclient", "cifs"), r"\s-U\s{0,2}\S{1,80}%(?P<secret>[^\s\"']{3,100})"),
    Place(("ldap",), _program(r"ldap\w{3,10}", r"-w\s")),
    Place(("zip", "7z", "sqlcmd", "bcp"), _program("unzip|zip|7z|sqlcmd|bcp", r"-(?:P\s|p(?!\s))")),
    Place(("htpasswd",), r"\bhtpasswd\s+-\w{0,4}b\w{0,4}\s+\S{1,200}\s+\S{1,80}\s+" + _ARGUMENT),
)
_OTHERS = (
    Place(
        ("bearer",),
        rf"(?i)\bbearer\s{{1,3}}{_QUOTE}(?P<secret>(?=[A-Za-z._~+/=-]{{0,80}}[0-9])[A-Za-z0-9._~+/=-]{{10,}}+)",
    ),
    Place(("basic ",), r"(?i)\bbasic (?P<secret>[A-Za-z0-9+/]{8,}+={0,2})", _is_userinfo),
    Place(("net user",), r"(?i)\bnet user\s+\S{1,80}\s+(?!/)" + _ARGUMENT),
    Place(("pass:",), r"(?i)(?:-pass(?:in|out)?\s|[\s/-])pass:(?P<secret>[^\s\"'`\\]{4,200})(?<![.,!?])"),
    Place(("identified",), rf"(?i)\bidentified\s+(?:with\s+\S{{1,60}}\s+)?by\s+{_ARGUMENT}"),
    Place(
        (":5432:", ":*:"),  # .pgpass
        r"(?m)^[\w.*-]{1,100}:(?:[0-9]{2,5}|\*):[\w*-]{1,60}:[\w*-]{1,60}:(?P<secret>\S{3,100})$",
    ),
)
_GATES = tuple(
    (gate, tuple((sign, place) for place in places for sign in place.signs))
    for gate, places in (("://", _ADDRESSES), ("auth", _HEADERS), (" -", _COMMANDS), ("", _OTHERS))
)
"""One search for all places of a kind spares the searches for each."""
PLACES = (*_ADDRESSES, *_HEADERS, *_COMMANDS, *_OTHERS)

_COOKIES = (
    rf"(?i)(?:\b(?:set-)?cookies?{_QUOTE}\s{{0,3}}[:=,]|--cookie[\s=]|\bcurl\b[^\n|;]{{0,200}}?\s-b\s)\s{{0,3}}{_QUOTE}"
    r"(?P<pairs>[^\s=;:\"'`\\]{1,80}=[^\r\n\"'`\\]{1,4000}+)"
)
_PAIR = r"[^\s=;]{1,80}=(?P<secret>[^\s;,]{1,4000}+)"


def find_placed(text: str, lower: str) -> Iterator[Span]:
    for gate, signs in _GATES:
        if gate in lower:
            for sign, place in signs:
                if sign in lower:
                    yield from _find_in(text, place)
    if "cookie" in lower or "curl" in lower:
        for header in compiled(_COOKIES).finditer(text):
            yield from _find_cookies(text, header)


def _find_in(text: str, place: Place) -> Iterator[Span]:
    for match in compiled(place.pattern).finditer(text):
        if place.check is None or place.check(match["secret"]):
            yield match.span("secret")


def _find_cookies(text: str, header: re.Match[str]) -> Iterator[Span]:
    for pair in compiled(_PAIR).finditer(text, *header.span("pairs")):
        if _is_cookie_value(pair["secret"]):
            yield pair.span("secret")
