"""Removes secrets from a text before it is indexed, shown or sent away.

`formats` recognises keys by their own format, `surroundings` by the text around them, and `assignments` by their names,
which are below. All of them report spans of the original text, so that a text can be cut after redaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

REDACTION_VERSION = 3
"""Incremented when more is redacted, so that existing indexes are rebuilt without it."""

REDACTED = "[redacted]"

_MIN_KEY_CHARS = 16
_SURROUNDINGS = ("://", "auth", " -", "bearer", "basic ", "net user", "pass:", "identified", ":5432:", ":*:", "cookie")
"""Without one of these in a text, no rule of `surroundings` can match."""
_MIN_KNOWN_CHARS = 4
_MARGIN = 512
"""Number of characters read beyond a cut. A secret is recognised within this many."""

Span = tuple[int, int]
"""Start and end of a secret."""


compiled = cache(re.compile)
"""Compiles a pattern on first use. Most texts need none of them."""


def redact(text: str, *, limit: int | None = None) -> str:
    """Replace everything that looks like a secret with '[redacted]'.

    With ``limit``, only that much of the beginning is returned, cut after it was redacted: half a key would not be
    recognised as one.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit + _MARGIN]
    else:
        limit = len(text)
    # As a reader sees the text, and once more without line breaks, which a program may have put into a key.
    has_unseen = "\x1b" in text or not text.isascii()
    spans = _find_seen(text, _UNSEEN, _find_in) if has_unseen else _find_in(text)
    if compiled(_BREAK).search(text):
        broken = _find_seen(text, _BREAK, partial(_find_in, only_keys=True))
        spans += [span for span in broken if "\n" in text[slice(*span)]]
    parts: list[str] = []
    done = 0
    for start, end in sorted(spans):
        if start >= limit:
            break
        if start > done or not parts:  # otherwise it begins in the one before, or right after it
            parts += (text[done:start], REDACTED)
        done = max(done, end)
    return "".join((*parts, text[done:limit])) if parts else text[:limit]


_UNSEEN = r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[\u00ad\u200b-\u200f\u2060\ufeff]|[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]"
"""Colours of a terminal, characters without width, and letters and digits of full width."""
_BREAK = r"\n(?<=[A-Za-z0-9_-]{12}\n)(?=[A-Za-z0-9_-]{12})"
"""End of a line within what may be one word that a terminal or a mail program broke."""


def _find_seen(text: str, unseen: str, find: Callable[[str], list[Span]]) -> list[Span]:
    """Find secrets in a text without what a reader does not see, and return their spans in the text itself."""
    if not compiled(unseen).search(text):
        return find(text)
    parts, places, done = list[str](), list[int](), 0
    for match in compiled(unseen).finditer(text):
        colour = " " if match[0][0] == "\x1b" else ""
        plain = chr(ord(match[0]) - 0xFEE0) if "\uff10" <= match[0] < "\ufff0" else colour
        parts += (text[done : match.start()], plain)
        places += (*range(done, match.start()), *([match.start()] if plain else []))
        done = match.end()
    places += range(done, len(text))
    return [(places[start], places[end - 1] + 1) for start, end in find("".join((*parts, text[done:])))]


def _find_in(text: str, *, only_keys: bool = False) -> list[Span]:
    # Import a table only if the text can match it: most queries match none, and users wait.
    spans: list[Span] = []
    # Keys have no spaces, so only long words are searched: a fraction of the text.
    words = " ".join([word for word in text.split() if len(word) >= _MIN_KEY_CHARS])
    if words or "PRIVATE KEY" in text:
        from kept.base.redact.formats import find_keys

        spans += find_keys(text, words)
    if only_keys:
        return spans
    lower = text.lower()
    if len(lower) != len(text):  # some letters become two characters in lower case
        lower = "".join([char.lower() if len(char.lower()) == 1 else char for char in text])
    if any(keyword in lower for keyword in _SURROUNDINGS):
        from kept.base.redact.surroundings import find_by_surroundings

        spans += find_by_surroundings(text, lower)
    others = [stem for stem in (_OTHERS_ASCII if lower.isascii() else OTHERS) if stem in lower]
    # 'key' alone is a common word: a secret only after a kind of key.
    if others or any(stem in lower and (stem != "key" or any(map(is_kind, lower.split(stem)[:-1]))) for stem in STEMS):
        from kept.base.redact.assignments import find_named

        spans += find_named(text, lower, others)
    return spans


class Redactor:
    """Redacts known secrets, such as the keys of the settings, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= _MIN_KNOWN_CHARS for form in _forms(secret)}
        # Longest first: replacing a secret that is part of another would leave the rest of the other.
        self._secrets = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        from kept.base.redact.formats import REPEATED

        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return compiled(REPEATED).sub(REDACTED, redact(text))


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret verbatim, and as encoded in a URL and in JSON."""
    yield secret
    if not secret.isalnum():
        from json import dumps
        from urllib.parse import quote

        yield quote(secret, safe="")
        yield dumps(secret)[1:-1]


# names of secrets: the words after which one is expected, in English and other languages

STEMS = ("pass", "pwd", "pw", "psk", "secret", "cred", "token", "key", "phpsess", "jsession")
"""Parts of words, in lower case. Every English name contains one."""

PASSWORDS = r"pass[ _-]?(?:word|wort|wd|phrase|code|ord|key)|passe|pwd|psk(?![a-z])"
"""Names that mean a password without further context. 'pass' and 'pw' need some."""
SHORT_PASSWORDS = r"pass|pw"
SECRETS = r"secret|credentials?|creds|token(?!s|i[sz])|phpsessid|jsessionid"
KEY_KINDS = tuple(
    """
    api access account auth encryption encrypt decryption license licence master private secret service shared signing
    signature subscription client app application consumer deploy webhook session storage admin root jwt hmac aes server
    """.split()
)
"""A key is a secret after one of these words: 'the key idea' is not."""

OTHER_PASSWORDS = (
    # German, Dutch, Scandinavian, Finnish
    "kennwort|wachtwoord|lösenord|losenord|adgangskode|kodeord|salasana"
    # French, Spanish, Portuguese, Romanian, Italian; 'mot de passe' and 'palavra-passe' end in 'passe'
    "|mdp|contraseña|contrasena|senha|parolă|parola"
    # Slavic, Hungarian, Turkish, Greek
    "|hasło|haslo|heslo|lozinka|jelszó|jelszo|şifre|sifre|geslo"
    "|пароль|парола|лозинка|κωδικός|συνθηματικό"
    # Hebrew, Arabic, Persian, Hindi, Bengali
    "|סיסמה|סיסמא|كلمة المرور|كلمة السر|رمز عبور|گذرواژه|पासवर्ड|পাসওয়ার্ড"
    # Thai, Vietnamese, Indonesian, Malay
    "|รหัสผ่าน|พาสเวิร์ด|mật khẩu|mat khau|kata sandi|kata laluan"
    # Chinese, Japanese, Korean
    "|密码|密碼|口令|パスワード|暗証|비밀번호|패스워드|암호"
).split("|")
OTHER_SECRETS = (
    "api-schlüssel|api schlüssel|zugangsschlüssel|clé api|clé secrète|clave api|clave secreta"
    "|chave de api|chiave api|jeton|klucz api|токен|ключ api|api-ключ|секретный ключ"
    "|密钥|密鑰|令牌|apiキー|トークン|シークレット|토큰|api 키|โทเค็น|คีย์ api"
).split("|")

OTHERS: dict[str, bool] = dict.fromkeys(OTHER_PASSWORDS, True) | dict.fromkeys(OTHER_SECRETS, False)
"""Names in other languages; True for those of a password."""
_OTHERS_ASCII = tuple([stem for stem in OTHERS if stem.isascii()])


def is_kind(before: str) -> bool:
    """Return whether a text ends with a kind of key, such as 'api'."""
    return before.rstrip(" _-").endswith(KEY_KINDS)


IS = r"(?:is|was|now|ist|lautet|est|es|è|é|är|er|je|jest|là|adalah|это)(?![A-Za-z])|是|为|為|は|คือ"
"""Verbs between a name and its secret in a sentence."""

METADATA = (
    r"(?:\As?|[_.-]|(?<=[a-z])(?=[A-Z]))"
    r"(?i:limit|count|type|ur[il]|endpoint|file|path|dir|folder|length|len|size|min|max|ids?(?![a-z])|names?|arn|expir|ttl"
    r"|budget|per|env|version|polic|at(?![a-z])|date|age(?![a-z])|rotat|last|reset|requir|enabled|disabled|field|label"
    r"|hint|prompt|index|usage|used|cost|price|rate|window|total|space|process|provider|manager|store|strength|regex"
    r"|pattern|format|scope|algorithm|header|prefix|suffix|less|error|status|valid|class|method|service|helper|ring"
    r"|board|change|updat|generator|check|verif|protect|input|column|ref(?![a-z])|kind|source|mode|public)"
)
"""Suffixes of a name whose value describes a secret, as in 'token_limit' or 'password_file'."""


__all__ = ["REDACTED", "REDACTION_VERSION", "Redactor", "redact"]
