"""Recognises secrets by their names: the value after 'password=', 'token:', '--api-key', 'Passwort ist'.

Names are found by plain searches for their stems; a pattern is tried only there. A value counts as a secret unless it
is a word, a number, a path or a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

from kept.base.redact import (
    IS,
    METADATA,
    OTHERS,
    PASSWORDS,
    SECRETS,
    SHORT_PASSWORDS,
    STEMS,
    Span,
    compiled,
    is_kind,
)
from kept.base.values import frozen

# values that are secrets


class Certainty(Enum):
    """Likelihood, by the text around it, that a value is meant literally."""

    QUOTED = 1
    TIGHT = 2
    """NAME=value, --flag value: a line of settings or of a shell."""
    LOOSE = 3
    """name: value, which may also be a sentence."""
    SENTENCE = 4
    """'the password is …', 'password …'."""


_REFERENCE = (
    r"(?i)\[redacted|[$<{(\[]|%[a-z_({]|\*{3}|\.{3}|…|x{3,}\Z|&[a-z]|!\w|@[a-z]+[./]"
    r"|(?:https?|file|arn|vault|op|ssm|sops|env|secret)://?|arn:|~[/\\]|\.{1,2}[/\\]|[A-Z]:[/\\]"
    r"|/(?:etc|var|home|usr|opt|tmp|run|mnt|srv|root|users|private|secrets?|app|data|dev|proc|library|path)\b"
    r"|(?:os|process|env|config|settings|self|this|getenv|getpass|secrets|vars?|local|module|args|opts|options|params"
    r"|req|request|import|system)\b[.(\[]"
    r"|[a-z_]\w*(?:\.\w+){0,4}[(\[]"
)
"""A variable, a call, a placeholder, a path or an address."""
_PLACEHOLDER = (
    r"(?i)(?:your|insert|enter|replace|change|fake|dummy|sample|example|placeholder|(?:put|add|todo|tbd)"
    r"(?=your|my|the|here|key|token|secret|pass|[_.-]|\Z))[_a-z.-]*\Z"
)
_DOTTED = r"[A-Za-z_]+(?:\.[A-Za-z_]+)+\Z"
_NUMBER = r"[0-9][0-9.,:/TZ+-]*[a-zA-Z%]{0,3}\Z"
_MEASURE = r"(?i)[0-9]+[\s–-]?(?:char|digit|bit|letter|byte|word|symbol|min|day|hour|sec|token|k\b|m\b|ms\b)"
_WORD_AND_NUMBER = r"[A-Za-z]{4,}[_-]?[0-9]{1,2}\Z"
_ALGORITHM = (
    r"(?i)(?:sha|md|base|utf|argon|oauth|ipv|aes|rsa|ed|pbkdf|http|ntlm|totp|web|v|python|windows)-?[0-9]{1,5}"
    r"\w{0,4}\W?\Z"
)
_NAME_INSIDE = (
    r"(?i)(?:\A|[_.-]|\b)(?:\w{0,20}_)?"
    r"(?:password|passwd|passphrase|pwd|secret|token|api_?key|credentials?)s?(?:\Z|[_.\s?!-])"
)
_CAMEL_NAME = r"[a-z]+[A-Za-z]*(?:Password|Token|Secret|Key|Credentials?)\Z"
_IDENTIFIER = r"[A-Za-z_]+\Z"
_CONSONANTS = r"(?i)[bcdfghjklmnpqrstvwxz]{5}"
_STOPWORDS = frozenset(
    """
    required optional string str text bytes none null nil undefined true false yes no hidden unknown missing invalid
    incorrect wrong empty default reset expired forgotten password passwd varchar char integer int number boolean bool
    any object unset must should shall will would can cannot could with without from for when that which instead into
    only this these those there here the your their its our flag option options argument parameter switch value file
    stdin prompt prompts field fields input include omit same-origin bearer basic identifier deprecated sensitive masked
    encrypted plaintext hashed manual automatic auto disabled enabled pending active revoked secretstr sequence uuid
    optional[str] changes changed policy manager managers protected protection needs need uses used using works stored
    never always also then than they them have has had been being does done did not but and are was were see what who
    where how why just like about after before below above between either both each every some same shared public
    private rotated generated random created updated case-sensitive case inherit read write admin user users email
    username login session cookie header body query path json yaml form mandatory confirm confirmed confirmation
    """.split()
)


def is_password(value: str, certainty: Certainty, *, follows: str) -> bool:
    """Return whether a value after 'password' is a password. ``follows`` is the rest of the line."""
    if _is_reference(value):
        return False
    if certainty is Certainty.QUOTED:
        return len(value) >= 3 and not _is_label(value)
    if certainty is Certainty.SENTENCE:
        return len(value) >= 5 and _has_digit(value) and not _is_measure(value)
    if len(value) < 4 or value.endswith((":", "=")) or _is_measure(value + follows[:12]):
        return False
    return not _is_word(value) or _ends_the_line(value, certainty, follows)


def is_secret(value: str, certainty: Certainty, *, is_setting: bool) -> bool:
    """Return whether a value after 'token', 'secret' or 'api key' is a secret.

    ``is_setting``: the name is written as in an environment or a URL query. Sentences do not start with API_KEY=.
    """
    if _is_reference(value) or len(value) < 5 or " " in value or (len(value) < 20 and _matches(_NUMBER, value)):
        return False
    if not _has_digit(value):
        return _is_secret_without_digit(value, certainty, is_setting=is_setting)
    if certainty is Certainty.SENTENCE:
        return len(value) >= 10 and sum(map(str.isdigit, value)) >= 2 and not _matches(_ALGORITHM, value)
    return certainty is not Certainty.LOOSE or not (_matches(_WORD_AND_NUMBER, value) or _is_measure(value))


def _is_secret_without_digit(value: str, certainty: Certainty, *, is_setting: bool) -> bool:
    if _is_label(value) or _matches(_CAMEL_NAME, value):
        return False
    if certainty is Certainty.QUOTED or (certainty is Certainty.TIGHT and is_setting):
        return len(value) >= 8
    looks_random = len(value) >= 16 and value.isalnum() and compiled(_CONSONANTS).search(value) is not None
    return looks_random and (certainty is Certainty.TIGHT or not (value.islower() or value.isupper()))


def _is_reference(value: str) -> bool:
    return compiled(_REFERENCE).match(value) is not None or _matches(_PLACEHOLDER, value) or _matches(_DOTTED, value)


def _is_label(value: str) -> bool:
    """Return whether a value describes a secret: a type, a state, the text on a button."""
    return value.lower().strip(".!?") in _STOPWORDS or compiled(_NAME_INSIDE).search(value) is not None


def _is_measure(value: str) -> bool:
    return _matches(_MEASURE, value) or _matches(_ALGORITHM, value)


def _is_word(value: str) -> bool:
    """Return whether a value has letters only, like a word of a sentence or a name in a program."""
    return compiled(r"[^\W\d_]+(?:[_'-][^\W\d_]+)*[.!?)]{0,2}\Z").match(value) is not None


def _ends_the_line(value: str, certainty: Certainty, follows: str) -> bool:
    """Return whether a plain word can be a password: in a sentence or a program, more text would follow it."""
    if _is_label(value) or _matches(_CAMEL_NAME, value):
        return False
    rest = follows.strip()
    if follows[:1] in (",", ")") and _matches(_IDENTIFIER, value):
        return False
    if certainty is Certainty.TIGHT:
        return True
    return not rest or rest[0] in "#|&;}\"'\\" or compiled(r"//|[\w.-]{1,30}[:=]").match(rest) is not None


def _has_digit(value: str) -> bool:
    return any(char.isdigit() for char in value)


def _matches(pattern: str, value: str) -> bool:
    return compiled(pattern).match(value) is not None


# names and their values

_SLASHES = r"\\{0,63}"
"""Escapes of a quotation mark: JSON inside JSON adds one per level."""
_NAME = (
    rf"(?i)(?:(?P<password>{PASSWORDS})|(?P<short>{SHORT_PASSWORDS})(?![a-z])|(?:{SECRETS})"
    r"|(?P<key>key(?!s|[a-z]{2})))(?P<suffix>[A-Za-z0-9_-]{0,32})"
)
_CLOSING = rf"(?:{_SLASHES}[\"'`]\]?|\]|\*{{1,3}}|”|»|」)?"
_SEPARATOR = (
    rf"{_CLOSING}(?:"
    r"(?P<equals>[ \t]{0,8}(?::=|=>|={1,3}|＝))"
    r"|(?P<colon>(?: for [\w./:~@'\"-]{1,80})?[ \t]{0,8}(?:->|→|[:：]))"
    rf"|(?P<value>[ \t]{{0,4}},?\s{{0,40}}{_SLASHES}[\"']?value{_SLASHES}[\"']?[ \t]{{0,4}}[:=])"
    r"|(?P<cell>[ \t]{0,20}\|)"
    r"|(?P<element></key>\s{0,40}<string>)"
    r"|(?P<argument>,[ \t]{0,4}(?=[\"']))"
    r"|(?P<tag>>)"
    r"|(?P<call>\()"
    rf"|(?P<verb>[ \t]{{0,3}}(?:{IS})[ \t]{{0,3}}:?|[ \t]{{1,3}}[–—-][ \t]{{1,3}})"
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
_SETTER = r"(?i)(?:set|put|env)[a-z_]{0,20}\([\"'][\w.-]{0,40}\Z"
_HEAD = (
    r"(?im)^(?P<left>[^\n]{0,200}?(?P<mark>[|,;\t])|)[ \t\"']{0,20}(?:[a-z]{1,20}[ _-])?"
    rf"(?:(?P<password>{PASSWORDS})|token|secret|key)[ \t\"']{{0,20}}(?:(?P<after>[|,;\t])[^\n]{{0,200}})?$"
)
"""Line with a cell that is the name of a secret."""
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


def find_named(text: str, lower: str, others: Iterable[str]) -> Iterator[Span]:
    """Yield the secrets after names. ``others`` are the names in other languages that the text contains."""
    for stem in (*STEMS, *others):
        at = lower.find(stem)
        while at >= 0:
            if name := _read_other(text, lower, stem, at) if stem in OTHERS else _read_name(text, lower, stem, at):
                yield from _find_value(text, name)
            at = lower.find(stem, at + len(stem))
    yield from _find_columns(text)


def _find_columns(text: str) -> Iterator[Span]:
    """Yield the secrets below a name that is the head of a column, in a table or in lines with commas."""
    for head in compiled(_HEAD).finditer(text):
        mark = head["mark"] or head["after"]
        column = head["left"].count(mark) if mark else 0
        for row in compiled(r"\n([^\n]+)").finditer(text, head.end()) if mark else ():
            cells = row[1].split(mark)
            if len(cells) != head[0].count(mark) + 1:
                break
            value = cells[column].strip(" \t\r`\"'")
            if head["password"]:
                accepted = is_password(value, Certainty.SENTENCE, follows="") and not _matches(_NUMBER, value)
            else:
                accepted = is_secret(value, Certainty.SENTENCE, is_setting=False)
            if accepted and " " not in value:
                start = text.index(value, row.start(1) + len(mark.join(cells[:column])))
                yield start, start + len(value)


def _read_name(text: str, lower: str, stem: str, at: int) -> _Name | None:
    if stem == "key" and not is_kind(lower[max(0, at - _LONGEST_KIND) : at]):
        return None
    match = compiled(_NAME).match(text, at)
    if match is None or (match["suffix"] and compiled(METADATA).search(match["suffix"])):
        return None
    is_short, is_key = match["short"] is not None, match["key"] is not None
    for_password = is_short or match["password"] is not None
    return _Name(at, match.end(), text[max(0, at - _REACH) : at], for_password, is_short, is_key)


def _read_other(text: str, lower: str, stem: str, at: int) -> _Name | None:
    end = at + len(stem)
    if stem.isascii() and (lower[at - 1 : at].isalpha() or lower[end : end + 1].isalpha()):
        return None
    return _Name(at, end, text[max(0, at - _REACH) : at], OTHERS[stem], is_foreign=not stem.isascii())


def _find_value(text: str, name: _Name) -> Iterator[Span]:
    separator = compiled(_SEPARATOR).match(text, name.end)
    if separator is None and not (name.is_foreign and text[name.end : name.end + 1].isascii()):
        return
    kind = (separator.lastgroup if separator else None) or "nothing"
    if kind == "space" and compiled(_FLAG).search(name.before[-70:]):
        kind = "flag"
    in_address = compiled(_PARAMETER).search(name.before[-42:]) is not None
    value = _read_value(text, separator.end() if separator else name.end, in_address=in_address)
    is_item = separator is not None and "]" in separator[0]  # d['password'] = value may be any expression
    if value is None or (is_item and not value.is_quoted) or not _belongs(text, name, kind, value):
        return
    certainty = _certainty(kind, value)
    if name.for_password:
        if kind == "equals" and separator and separator[kind][0].isspace() and not value.is_quoted:
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
        case "argument":
            return " " not in value.text and compiled(_SETTER).search(name.before) is not None
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
    if value.is_quoted and kind != "argument":
        return Certainty.QUOTED
    if kind in ("verb", "space", "cell", "nothing", "argument") or value.on_next_line:
        return Certainty.SENTENCE
    return Certainty.LOOSE if kind == "colon" else Certainty.TIGHT
