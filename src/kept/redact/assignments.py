"""Recognises secrets by their names: the value after 'password=', 'token:', '--api-key', 'Passwort ist'.

Names are found by plain searches for their stems; a pattern is tried only there.
"""

from __future__ import annotations

from collections.abc import Iterator

from kept.redact import names
from kept.redact.secret_values import Certainty, is_password, is_secret
from kept.redact.spans import Span, compiled
from kept.values import frozen

_SLASHES = r"\\{0,63}"
"""Escapes of a quotation mark: JSON inside JSON adds one per level."""
_NAME = (
    rf"(?i)(?:(?P<password>{names.PASSWORDS})|(?P<short>{names.SHORT_PASSWORDS})(?![a-z])|(?:{names.SECRETS})"
    r"|(?P<key>key(?!s|[a-z]{2})))(?P<suffix>[A-Za-z0-9_-]{0,32})"
)
_CLOSING = rf"(?:{_SLASHES}[\"'`\]]|\*{{1,3}}|”|»|」)?"
_SEPARATOR = (
    rf"{_CLOSING}(?:"
    r"(?P<equals>[ \t]{0,8}(?::=|=>|={1,3}|＝))"
    r"|(?P<colon>[ \t]{0,8}(?:->|→|[:：]))"
    rf"|(?P<value>[ \t]{{0,4}},?\s{{0,40}}{_SLASHES}[\"']?value{_SLASHES}[\"']?[ \t]{{0,4}}[:=])"
    r"|(?P<cell>[ \t]{0,20}\|)"
    r"|(?P<tag>>)"
    r"|(?P<call>\()"
    rf"|(?P<verb>[ \t]{{0,3}}(?:{names.IS})[ \t]{{0,3}}:?|[ \t]{{1,3}}[–—-][ \t]{{1,3}})"
    r"|(?P<space>[ \t]{1,8}))"
)
_BEFORE_VALUE = r"[*_]{0,3}[ \t\u3000]{0,20}(?:(?:[|>][+-]?[ \t]{0,4})?(?P<newline>\r?\n|\\n)[ \t]{1,24})?"
_QUOTED = (
    rf"(?:(?P<quote>{_SLASHES}[\"'`])(?P<plain>(?:(?!(?<!\\)(?P=quote))[^\n]){{1,500}})"
    r"|[“„«‘「『](?P<curly>[^”“»’」』\n]{1,500}))"
)
_BARE = r"(?:\\(?![nrt\"'`\\])|[^\s\"'`,;<>\\，。；、）]){1,200}+"
_FLAG = r"(?:\A|[\s\"'`])--?(?:[A-Za-z0-9]{1,20}[_-]){0,3}\Z"
_PARAMETER = r"[?&][A-Za-z0-9_.-]{0,40}\Z"
_ACCOUNT = r"(?i)\b(?:login|user(?:name)?|account|e?mail|host|smtp)\b"
_LONGEST_KIND = 14
_REACH = 120
"""Number of characters read before a name and after its value."""


@frozen
class _Name:
    start: int
    end: int
    before: str
    for_password: bool
    is_short: bool = False
    """True for 'pass' and 'pw', which mean a password only in some contexts."""
    is_key: bool = False
    is_foreign: bool = False
    """True for a script that may not separate words by spaces."""


@frozen
class _Value:
    text: str
    start: int
    is_quoted: bool
    on_next_line: bool


def find_named(text: str, lower: str) -> Iterator[Span]:
    for stem in names.STEMS:
        if stem in lower:
            yield from _find_stem(text, lower, stem)
    for stem in names.find_others(lower):
        yield from _find_other(text, lower, stem)


def _iter_positions(lower: str, stem: str) -> Iterator[int]:
    at = lower.find(stem)
    while at >= 0:
        yield at
        at = lower.find(stem, at + len(stem))


def _find_stem(text: str, lower: str, stem: str) -> Iterator[Span]:
    for at in _iter_positions(lower, stem):
        if stem == "key" and not names.is_kind(lower[max(0, at - _LONGEST_KIND) : at]):
            continue
        match = compiled(_NAME).match(text, at)
        if match is None or (match["suffix"] and compiled(names.METADATA).search(match["suffix"])):
            continue
        before = text[max(0, at - _REACH) : at]
        is_short, is_key = match["short"] is not None, match["key"] is not None
        for_password = is_short or match["password"] is not None
        yield from _find_value(text, _Name(at, match.end(), before, for_password, is_short, is_key))


def _find_other(text: str, lower: str, stem: str) -> Iterator[Span]:
    for at in _iter_positions(lower, stem):
        end = at + len(stem)
        if stem.isascii() and (lower[at - 1 : at].isalpha() or lower[end : end + 1].isalpha()):
            continue
        before = text[max(0, at - _REACH) : at]
        yield from _find_value(text, _Name(at, end, before, names.OTHERS[stem], is_foreign=not stem.isascii()))


def _find_value(text: str, name: _Name) -> Iterator[Span]:
    separator = compiled(_SEPARATOR).match(text, name.end)
    if separator is None and not (name.is_foreign and text[name.end : name.end + 1].isascii()):
        return
    kind = (separator.lastgroup if separator else None) or "nothing"
    if kind == "space" and compiled(_FLAG).search(name.before[-70:]):
        kind = "flag"
    in_address = compiled(_PARAMETER).search(name.before[-42:]) is not None
    value = _read_value(text, separator.end() if separator else name.end, in_address=in_address)
    if value is None or not _belongs(text, name, kind, value):
        return
    certainty = _certainty(kind, value)
    if name.for_password:
        if kind == "equals" and separator and separator[0][0].isspace() and not value.is_quoted:
            certainty = Certainty.LOOSE  # 'password = is_given or …' is a line of a program
        end = value.start + len(value.text)
        accepted = is_password(value.text, certainty, follows=text[end : end + _REACH].partition("\n")[0])
    else:
        is_setting = kind == "flag" or in_address or text[name.start : name.end].isupper()
        if certainty is Certainty.LOOSE and name.before.endswith("_"):
            certainty = Certainty.TIGHT  # a sentence would not say session_secret
        accepted = is_secret(value.text, certainty, is_setting=is_setting)
    if accepted:
        yield value.start, value.start + len(value.text)


def _read_value(text: str, at: int, *, in_address: bool) -> _Value | None:
    lead = compiled(_BEFORE_VALUE).match(text, at)
    at, on_next_line = (lead.end(), lead["newline"] is not None) if lead else (at, False)
    quoted = compiled(_QUOTED).match(text, at)
    if quoted is not None:
        group = "plain" if quoted["plain"] is not None else "curly"
        return _Value(quoted[group], quoted.start(group), is_quoted=True, on_next_line=on_next_line)
    bare = compiled(_BARE).match(text, at)
    if bare is None:
        return None
    value = bare[0].rstrip(")]}") or bare[0]
    if in_address:
        value = value.partition("&")[0]
    return _Value(value, at, is_quoted=False, on_next_line=on_next_line)


def _belongs(text: str, name: _Name, kind: str, value: _Value) -> bool:
    """Return whether the value after this kind of separator can belong to the name."""
    joined = name.before[-1:] in ("_", "-")
    if name.is_short and not _means_password(text, name, kind, value, joined=joined):
        return False
    match kind:
        case "tag":
            return "<" in text[max(0, name.end - 60) : name.end] and not name.before.endswith("/")
        case "call":
            return name.for_password and value.is_quoted
        case "cell":
            return name.for_password
        case "nothing":
            return value.text.isascii()
        case "space":
            return name.for_password or name.is_key or joined
        case _:
            return True


def _means_password(text: str, name: _Name, kind: str, value: _Value, *, joined: bool) -> bool:
    """Return whether 'pass' or 'pw' names a password: in 'smtp_pass: x' and 'pass=x', but not in 'PASS: test_login'."""
    match kind:
        case "equals" | "flag" | "value":
            return True
        case "colon":
            around = name.before + text[value.start : value.start + _REACH]
            return joined or value.is_quoted or compiled(_ACCOUNT).search(around) is not None
        case "verb":
            return name.end - name.start == len("pw")
        case "space":
            return name.before.endswith(("require", "bind", "root"))
        case _:
            return False


def _certainty(kind: str, value: _Value) -> Certainty:
    if value.is_quoted:
        return Certainty.QUOTED
    if kind in ("verb", "space", "cell", "nothing") or value.on_next_line:
        return Certainty.SENTENCE
    return Certainty.LOOSE if kind == "colon" else Certainty.TIGHT
