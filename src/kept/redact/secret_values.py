"""Tells a secret after 'password' or 'token' from a word, a number, a path or a variable."""

from __future__ import annotations

from enum import Enum

from kept.redact.spans import compiled


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
    r"(?i)(?:your|insert|enter|replace|put|add|change|fake|dummy|sample|example|placeholder|todo|tbd)[_a-z.-]*\Z"
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
