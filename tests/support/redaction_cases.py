"""What redaction is measured with: texts with a secret in them, and texts without.

Most are lines of secrets.txt: a kind, a tab, and a text with ⟦its secret⟧. ⏎ is the end of a line, and ⟨40h⟩ stands for
40 random signs: so no scanner of repositories takes a key for real. The same signs come out each time.
"""

import base64
import json
import random
import re
import string
from dataclasses import dataclass
from pathlib import Path

_RANDOM = random.Random("redaction")
_ALNUM = string.ascii_letters + string.digits
_URLSAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_HEX = string.hexdigits[:16]
_SIGNS = {
    "": _ALNUM,
    "u": _URLSAFE,
    "b": _BASE64,
    "h": _HEX,
    "d": string.digits,
    "l": string.ascii_letters,
    "s": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "q": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}
_FOLDER = Path(__file__).parent.parent / "base" / "redact"


@dataclass(frozen=True)
class Secret:
    kind: str
    text: str
    secret: str
    """What may not be left in the redacted text."""


def _made(length: int, signs: str = _ALNUM) -> str:
    """Random, with a digit, a small and a large letter where the alphabet has them."""
    while True:
        text = "".join(_RANDOM.choice(signs) for _ in range(length))
        if all(set(text) & set(group) for group in (string.digits, string.ascii_lowercase) if set(signs) & set(group)):
            return text


def _filled(text: str) -> str:
    text = text.replace("⟨uuid⟩", "⟨8h⟩-⟨4h⟩-⟨4h⟩-⟨4h⟩-⟨12h⟩")
    return re.sub(r"⟨(\d+)(\w?)⟩", lambda match: _made(int(match[1]), _SIGNS[match[2]]), text)


def _read_lines(name: str) -> list[str]:
    return [line.replace("⏎", "\n") for line in (_FOLDER / name).read_text().splitlines()]


def _written() -> list[Secret]:
    made = []
    for line in _read_lines("secrets.txt"):
        kind, text = line.split("\t")
        before, secret, after = re.split("[⟦⟧]", _filled(text))
        made.append(Secret(kind, before + secret + after, secret))
    return made


def _nested(text: str, times: int) -> str:
    """JSON as a string in JSON, as often as asked."""
    for _ in range(times):
        text = json.dumps({"result": text})
    return text


def _pem(kind: str, lines: int = 8) -> str:
    body = "\n".join(_made(64, _BASE64) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def _blocks() -> list[Secret]:
    texts = [_pem(kind + "PRIVATE" + " KEY") for kind in ("RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "")]
    made = [Secret("private key", f"before\n{text}\nafter", text.splitlines()[2]) for text in texts]
    made.append(Secret("private key", json.dumps({"private_key": texts[0]}), texts[0].splitlines()[3]))
    made.append(Secret("private key", _nested(json.dumps({"private_key": texts[1]}), 2), texts[1].splitlines()[3]))
    made.append(Secret("private key", texts[2][:300], texts[2].splitlines()[1]))
    pgp = _pem("PGP " + "PRIVATE" + " KEY BLOCK")
    made.append(Secret("private key", pgp, pgp.splitlines()[3]))
    putty = "\n".join(_made(64, _BASE64) for _ in range(3))
    made.append(Secret("private key", f"Private-Lines: 3\n{putty}\nPrivate-MAC: ok", putty.splitlines()[1]))
    return made


def _json() -> list[Secret]:
    record = json.dumps({"user": "kai", "password": "hunter2", "port": 1})
    made = [Secret("nested json", _nested(record, times), "hunter2") for times in range(6)]
    quotes = json.dumps({"password": 'a"b\\c secret9', "user": "kai"})
    made += [Secret("nested json", _nested(quotes, times), "secret9") for times in range(4)]
    env = "SMTP_PASS=hunter2\nAPI_KEY=abc123def456\nx=1"
    made += [
        Secret("nested json", _nested(env, times), secret)
        for times in (1, 2, 3)
        for secret in ("hunter2", "abc123def456")
    ]
    token = "ghp_" + _made(36)
    made += [Secret("nested json", _nested(f"one\n{token}\ttwo", times), token) for times in (1, 2, 3)]
    named = json.dumps([{"name": "DB_PASSWORD", "value": "hunter2"}])
    made += [Secret("nested json", _nested(named, times), "hunter2") for times in (0, 1)]
    auth = json.dumps({"auths": {"x.example": {"auth": (basic := base64.b64encode(b"kai:hunter2").decode())}}})
    made += [Secret("nested json", _nested(auth, times), basic) for times in (0, 2)]
    headers = json.dumps({"Authorization": "Bearer " + (bearer := _made(30)), "Cookie": "sid=" + (sid := _made(20))})
    made += [Secret("nested json", _nested(headers, times), secret) for times in (0, 1, 3) for secret in (bearer, sid)]
    return made


SECRETS: tuple[Secret, ...] = tuple(_written() + _blocks() + _json())
INNOCUOUS: tuple[str, ...] = tuple(_read_lines("innocuous.txt"))
"""Lines without a secret: about tokens and keys, names like prefixes, identifiers, addresses, commands, languages."""
