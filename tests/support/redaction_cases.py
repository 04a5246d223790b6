"""What redaction is measured with: texts with a secret in them, and texts without.

Every key is made up when this module is imported, from a prefix and random letters, so that no scanner of repositories
takes one for real. The same letters come out each time.
"""

from __future__ import annotations

import base64
import json
import random
import string
from dataclasses import dataclass
from pathlib import Path

_RANDOM = random.Random("redaction")
_ALNUM = string.ascii_letters + string.digits
_URLSAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_HEX = string.hexdigits[:16]


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


def _uuid() -> str:
    return "-".join(_made(length, _HEX) for length in (8, 4, 4, 4, 12))


def _nested(text: str, times: int) -> str:
    """JSON as a string in JSON, as often as asked."""
    for _ in range(times):
        text = json.dumps({"result": text})
    return text


def _keys() -> list[Secret]:
    """Each in a place of its own kind: alone, in a sentence, in a line of settings, in JSON, in an address, after an
    escaped line break."""
    keys = {
        "openai": ["sk-" + "proj-" + _made(48, _URLSAFE), "sk-" + _made(48), "sk-" + "svcacct-" + _made(60, _URLSAFE)],
        "anthropic": ["sk-ant-" + "api03-" + _made(93, _URLSAFE) + "AA"],
        "openrouter": ["sk-or-" + "v1-" + _made(64, _HEX)],
        "deepseek": ["sk-" + _made(32, _HEX)],
        "langfuse": ["sk-lf-" + _uuid()],
        "hugging face": ["hf_" + _made(34, string.ascii_letters)],
        "groq": ["gsk_" + _made(52)],
        "replicate": ["r8_" + _made(37)],
        "perplexity": ["pplx-" + _made(48)],
        "xai": ["xai-" + _made(80)],
        "nvidia": ["nvapi-" + _made(64, _URLSAFE)],
        "voyage": ["pa-" + _made(43)],
        "kept": ["kept_" + _made(43, _URLSAFE)],
        "tavily": ["tvly-" + _made(32)],
        "langsmith": ["lsv2_" + "pt_" + _made(32, _HEX) + "_" + _made(10, _HEX)],
        "pinecone": ["pcsk_" + _made(6) + "_" + _made(60)],
        "elevenlabs": ["sk_" + _made(48, _HEX)],
        "aws": [
            "AKIA" + _made(16, string.ascii_uppercase + "234567"),
            "ASIA" + _made(16, string.ascii_uppercase + "234567"),
        ],
        "google": [
            "AIza" + _made(35, _URLSAFE),
            "GOCSPX" + "-" + _made(28, _URLSAFE),
            "ya29." + "a0" + _made(120, _URLSAFE),
        ],
        "google refresh": ["1//0" + "g" + _made(90, _URLSAFE)],
        "azure client": [_made(3) + "8Q~" + _made(34)],
        "digitalocean": ["dop_v1_" + _made(64, _HEX)],
        "heroku": ["HRKU-" + "AA" + _made(58, _URLSAFE)],
        "databricks": ["dapi" + _made(32, _HEX)],
        "vault": ["hvs." + "CAESI" + _made(90, _URLSAFE)],
        "terraform cloud": [_made(14) + ".atlasv1." + _made(67, _URLSAFE)],
        "doppler": ["dp.pt." + _made(43)],
        "fly": ["fo1_" + _made(43, _URLSAFE)],
        "netlify": ["nfp_" + _made(36)],
        "supabase": ["sbp_" + _made(40, _HEX), "sb_secret_" + _made(22, _URLSAFE) + "_" + _made(8)],
        "planetscale": ["pscale_tkn_" + _made(43, _URLSAFE)],
        "tailscale": ["tskey-" + "auth-" + _made(12) + "-" + _made(32)],
        "pulumi": ["pul-" + _made(40, _HEX)],
        "1password": ["ops_" + "eyJ" + _made(250, _URLSAFE)],
        "github": [f"gh{kind}_" + _made(36) for kind in "pousr"] + ["github_pat_" + "11" + _made(20) + "_" + _made(59)],
        "gitlab": [f"gl{kind}-" + _made(20, _URLSAFE) for kind in ("pat", "cbt", "ft", "dt", "rt", "ptt")]
        + ["gloas-" + _made(64, _HEX)],
        "atlassian": ["ATATT3" + "xFfGF0" + _made(180, _URLSAFE), "ATBB" + _made(32)],
        "npm": ["npm_" + _made(36)],
        "pypi": ["pypi-" + "AgEIcHlwaS5vcmc" + _made(150, _URLSAFE)],
        "rubygems": ["rubygems_" + _made(48, _HEX)],
        "docker": ["dckr_pat_" + _made(27, _URLSAFE)],
        "sonar": ["squ_" + _made(40, _HEX)],
        "slack": [
            "xoxb-" + _made(12, string.digits) + "-" + _made(13, string.digits) + "-" + _made(24),
            "xoxe." + "xoxp-1-" + _made(160),
            "xapp-1-" + "A" + _made(10) + "-" + _made(13, string.digits) + "-" + _made(64, _HEX),
        ],
        "discord": ["M" + _made(25) + "." + _made(6) + "." + _made(38)],
        "telegram": [_made(10, string.digits) + ":AA" + _made(33, _URLSAFE)],
        "twilio": ["SK" + _made(32, _HEX)],
        "sendgrid": ["SG." + _made(22) + "." + _made(43)],
        "mailgun": ["key-" + _made(32, _HEX)],
        "mailchimp": [_made(32, _HEX) + "-us21"],
        "brevo": ["xkeysib-" + _made(64, _HEX) + "-" + _made(16)],
        "resend": ["re_" + _made(8) + "_" + _made(24)],
        "stripe": [
            *(f"{kind}_live_" + _made(24) for kind in ("sk", "rk")),
            "sk_" + "org_live_" + _made(40),
            "sk_" + "test_" + _made(24),
            "whsec_" + _made(32),
        ],
        "shopify": ["shpat_" + _made(32, _HEX), "shpss_" + _made(32, _HEX)],
        "square": ["sq0csp-" + _made(43, _URLSAFE), "EAAA" + _made(60)],
        "razorpay": ["rzp_live_" + _made(14)],
        "plaid": ["access-production-" + _uuid()],
        "facebook": ["EAAG" + _made(150)],
        "linear": ["lin_api_" + _made(40)],
        "notion": ["ntn_" + _made(46), "secret_" + _made(43)],
        "airtable": ["pat" + _made(14) + "." + _made(64, _HEX)],
        "figma": ["figd_" + _made(40, _URLSAFE)],
        "postman": ["PMAK-" + _made(24, _HEX) + "-" + _made(34, _HEX)],
        "new relic": ["NRAK-" + _made(27, string.ascii_uppercase + string.digits)],
        "grafana": ["glsa_" + _made(32) + "_" + _made(8, _HEX)],
        "sentry": ["sntrys_" + "eyJ" + _made(100) + "_" + _made(43)],
        "dropbox": ["sl." + _made(130, _URLSAFE)],
        "launchdarkly": ["sdk-" + _uuid()],
        "twitch": ["oauth:" + _made(30, string.ascii_lowercase + string.digits)],
        "age": ["AGE-SECRET-KEY-" + "1" + _made(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")],
        "jwt": [".".join(("eyJ" + _made(33, _URLSAFE), "eyJ" + _made(90, _URLSAFE), _made(43, _URLSAFE)))],
    }
    around = (
        "{}",
        "it is {}, keep it",
        "VALUE={}\n",
        '{{"k": "{}"}}',
        "https://x.example/?v={}&y=1",
        "first\\n{}\\nlast",
    )
    made = []
    for number, (kind, secret) in enumerate((kind, one) for kind, group in keys.items() for one in group):
        made.append(Secret(kind, around[number % len(around)].format(secret), secret))
    return made


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


def _settings() -> list[Secret]:
    names = (
        "SMTP_PASS MYSQL_PW DB_PASSWORD POSTGRES_PASSWORD REDIS_PASS API_KEY SECRET_KEY JWT_SECRET AUTH_TOKEN"
        " CLIENT_SECRET AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN ENCRYPTION_KEY GITHUB_TOKEN STRIPE_SECRET"
        " AZURE_CLIENT_SECRET TWILIO_AUTH_TOKEN DD_API_KEY ALGOLIA_ADMIN_KEY PGPASSWORD"
    ).split()
    made = [Secret("environment", f"{name}={value}\nNEXT=1", value) for name in names for value in [_made(24)]]
    made += [
        Secret("environment", "//registry.npmjs.org/:_authToken=" + (npm := _made(36)), npm),
        Secret("yaml", "api_key: " + (key := _made(32, _HEX)), key),
        Secret("yaml", "client-key-data: " + (key := _made(80, _BASE64)), key),
        Secret("connection string", "Protocol=https;AccountKey=" + (key := _made(86, _BASE64)) + "==", key),
        Secret("connection string", "Endpoint=sb://x/;SharedAccessKey=" + (key := _made(43, _BASE64)) + "=", key),
    ]  # fmt: skip
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


def _web() -> list[Secret]:
    signature, sas = _made(64, _HEX), _made(43) + "%3D"
    hook = _made(24)
    lines = {
        "postgres://kai:hunter2@db:5432/x": "hunter2",
        "postgres://kai:hun/ter2@db:5432/x": "ter2",
        "mongodb+srv://kai:p%40ss%2Fword@c.x.net/test": "p%40ss",
        "redis://:hunter2@cache/0": "hunter2",
        "amqp://kai:hunter@mq//": ":hunter@",
        "https://kai:hunter2@git.example/x.git": "hunter2",
        f"https://{hook}@git.example/x.git": hook,
        "cloudinary://123456789012345:" + (key := _made(27)) + "@demo": key,
        "https://api.telegram.org/bot123456789:AA" + (key := _made(33)) + "/getMe": key,
        f"https://b.s3.amazonaws.com/x?X-Amz-Expires=60&X-Amz-Signature={signature}": signature,
        f"https://storage.googleapis.com/b/o?X-Goog-Signature={signature}&x=1": signature,
        f"https://a.blob.core.windows.net/c?sv=2024-11-04&se=2026-01-01&sig={sas}": sas,
        f"https://d.cloudfront.net/x?Expires=1&Signature={signature}&Key-Pair-Id=K1": signature,
        "https://hooks.slack.com/services/T00/B00/" + hook: hook,
        "https://discord.com/api/webhooks/123456789012345678/" + (key := _made(68, _URLSAFE)): key,
        "https://x.webhook.office.com/webhookb2/" + (key := _uuid()) + "@" + _uuid(): key,
        "https://hooks.zapier.com/hooks/catch/1234/abc9de/": "abc9de",
        "https://x.example/?access_token=abc123def456&y=1": "abc123def456",
        "https://x.example/?api_key=abcdefghijk&y=1": "abcdefghijk",
        "Authorization: Bearer " + (key := _made(32)): key,
        "authorization: bearer " + (key := _made(20, _HEX)): key,
        "Authorization: Basic a2FpOmh1bnRlcjI=": "a2FpOmh1bnRlcjI=",
        "Authorization: token " + (key := _made(40, _HEX)): key,
        "Proxy-Authorization: Basic a2FpOmh1bnRlcjI=": "a2FpOmh1bnRlcjI=",
        "Authorization: " + (key := _made(32)): key,
        "X-Auth-Token: abc123def456": "abc123def456",
        "Private-Token: abc123def456": "abc123def456",
        "Ocp-Apim-Subscription-Key: " + (key := _made(32, _HEX)): key,
        "Cookie: theme=dark; sessionid=" + (key := _made(32)): key,
        "Set-Cookie: sid=" + (key := _made(26)) + "; Path=/; HttpOnly": key,
        'document.cookie = "auth=' + (key := _made(26)) + '"': key,
        "PHPSESSID=" + (key := _made(26)): key,
    }
    return [Secret("web", text, secret) for text, secret in lines.items()]


_FOLDER = Path(__file__).parent.parent / "redact"


def _read_lines(name: str) -> list[str]:
    return [line.replace("\\n", "\n") for line in (_FOLDER / name).read_text().splitlines()]


def _written() -> list[Secret]:
    """Lines of settings and of a shell, and sentences: kind, text and secret, separated by tabs."""
    shadow = f"kai:$6$saltsalt${_made(86)}:19000:0:"
    written = [Secret(*line.split("\t")) for line in _read_lines("secrets.txt")]
    return [*written, Secret("command line", shadow, "$6$saltsalt$")]


SECRETS: tuple[Secret, ...] = tuple(_keys() + _blocks() + _settings() + _json() + _web() + _written())
INNOCUOUS: tuple[str, ...] = tuple(_read_lines("innocuous.txt"))
"""Lines without a secret: about tokens and keys, names like prefixes, identifiers, addresses, commands, languages."""
