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
        Secret("environment", "API_KEY=qwertzuiopasdfghjkl", "qwertzuiopasdfghjkl"),
        Secret("environment", "export DB_PASSWORD='correct horse battery'", "horse"),
        Secret("environment", "SMTP_PASS=hunter", "hunter"),
        Secret("environment", 'MYSQL_PW="hunter2"', "hunter2"),
        Secret("environment", "$env:API_TOKEN = 'f00dfeed1234'", "f00dfeed1234"),
        Secret("environment", "//registry.npmjs.org/:_authToken=" + (npm := _made(36)), npm),
        Secret("yaml", "database:\n  user: kai\n  password: hunter2\n", "hunter2"),
        Secret("yaml", "password:\n    hunter2\nport: 5432", "hunter2"),
        Secret("yaml", "smtp:\n  pass: 'w0rdpass'\n", "w0rdpass"),
        Secret("yaml", "api_key: " + (key := _made(32, _HEX)), key),
        Secret("yaml", "password: |\n  hunter2\n", "hunter2"),
        Secret("yaml", "env:\n- name: DB_PASSWORD\n  value: hunter2\n", "hunter2"),
        Secret("yaml", "client-key-data: " + (key := _made(80, _BASE64)), key),
        Secret("ini", "[client]\npassword = hunter\n", "= hunter"),
        Secret("toml", 'token = "abc123def456"', "abc123def456"),
        Secret("xml", "<server><password>hunter2</password></server>", "hunter2"),
        Secret("xml", '<add key="ApiKey" value="abc123def456" />', "abc123def456"),
        Secret("properties", "spring.datasource.password=hunter2", "hunter2"),
        Secret("connection string", "Server=db;User Id=kai;Password=hunter2;", "hunter2"),
        Secret("connection string", "Protocol=https;AccountKey=" + (key := _made(86, _BASE64)) + "==", key),
        Secret("connection string", "Endpoint=sb://x/;SharedAccessKey=" + (key := _made(43, _BASE64)) + "=", key),
        Secret("connection string", "host=db user=kai password=hunter dbname=x", "=hunter"),
        Secret("code", 'connect(user="kai", password="my dog Rex")', "dog Rex"),
        Secret("code", "const apiKey = 'abc123def456';", "abc123def456"),
        Secret("code", 'client_secret := "abc123def456"', "abc123def456"),
        Secret("code", "'password' => 'hunter2',", "hunter2"),
        Secret("code", 'user.setPassword("hunter2")', "hunter2"),
        Secret("sql", "CREATE USER kai IDENTIFIED BY 'hunter2';", "hunter2"),
        Secret("sql", "ALTER ROLE kai WITH PASSWORD 'hunter2';", "hunter2"),
        Secret("markdown", "**Password:** hunter2", "hunter2"),
        Secret("markdown", "| password | hunter2 |", "hunter2"),
        Secret("markdown", "- Password: `hunter2`", "hunter2"),
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


def _commands() -> list[Secret]:
    lines = {
        "machine api.x login kai password hunter2": "hunter2",
        "machine api.x\n  login kai\n  password hunter2\n": "hunter2",
        "mytool --password hunter2 --verbose": "hunter2",
        "mytool --password=hunter --verbose": "=hunter",
        "mytool --db-password 's3cr3t word'": "s3cr3t",
        "mytool --token abc123def456": "abc123def456",
        "mytool --api-key abc123def456": "abc123def456",
        "sshpass -p hunter2 ssh kai@x": "hunter2",
        "sshpass -p 'hunter2' ssh kai@x": "hunter2",
        "curl -u kai:hunter2 https://x.example": "hunter2",
        "curl -s --user 'kai:hunter2' https://x.example": "hunter2",
        "mysql -h db -u root -phunter2 shop": "hunter2",
        "mysqldump -uroot -p'hunter2' shop": "hunter2",
        "redis-cli -h x -a hunter2 ping": "hunter2",
        "docker login -u kai -p hunter2 x.example": "hunter2",
        "mongosh -u kai -p hunter2": "hunter2",
        "PGPASSWORD=hunter psql -h db": "=hunter",
        "ldapsearch -D cn=kai -w hunter2": "hunter2",
        "unzip -P hunter2 x.zip": "hunter2",
        "smbclient //srv/x -U kai%hunter2": "hunter2",
        "openssl rsa -passin pass:hunter2 -in key.pem": "hunter2",
        "htpasswd -b .htpasswd kai hunter2": "hunter2",
        "net user kai hunter2 /add": "hunter2",
        "aws configure set aws_secret_access_key abc123def456abc1": "abc123def456abc1",
        "db.x:5432:shop:kai:hunter2": "hunter2",
        'curl -H "X-Api-Key: abc123def456" https://x.example': "abc123def456",
        "curl -b 'session=abc123def456' https://x.example": "abc123def456",
        "kai:$6$saltsalt$" + _made(86) + ":19000:0:": "$6$saltsalt$",
    }
    return [Secret("command line", text, secret) for text, secret in lines.items()]


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


def _languages() -> list[Secret]:
    lines = (
        "Passwort: hunter2", "Das Passwort ist hunter2", "Das Passwort lautet: hunter2", "Kennwort = hunter2",
        "mot de passe : hunter2", "Le mot de passe est hunter2", "mdp: hunter2", "contraseña: hunter2",
        "La contraseña es hunter2", "senha: hunter2", "A senha é hunter2", "wachtwoord: hunter2", "lösenord: hunter2",
        "hasło: hunter2", "heslo: hunter2", "пароль: hunter2", "пароль hunter2", "parola: hunter2", "şifre: hunter2",
        "รหัสผ่าน: hunter2", "รหัสผ่านคือ hunter2", "密码：hunter2", "密码是hunter2", "密碼: hunter2", "パスワード：hunter2",
        "パスワードは hunter2", "비밀번호: hunter2", "mật khẩu: hunter2", "kata sandi: hunter2", "पासवर्ड: hunter2",
        "كلمة المرور: hunter2", "סיסמה: hunter2", "password：hunter2", "API-Schlüssel: abc123def456",
        "clé API : abc123def456", "密钥：abc123def456",
    )  # fmt: skip
    return [Secret("languages", text, text.split()[-1][-7:]) for text in lines]


def _sentences() -> list[Secret]:
    lines = {
        "the password is hunter22, remember?": "hunter22",
        "the wifi password is “my dog Rex”": "dog Rex",
        "my pw is hunter2": "hunter2",
        "password: hunter2": "hunter2",
        "Password: Tr0ub4dor&3": "Tr0ub4dor",
        "user kai password hunter2": "hunter2",
        "login: kai, password: hunter": ": hunter",
        "token: 9f8e7d6c5b4a": "9f8e7d6c5b4a",
        "the api key is 9f8e7d6c5b4a9f8e": "9f8e7d6c5b4a9f8e",
        "credentials: kai:hunter2x": "hunter2x",
        "passphrase: 'correct horse battery staple'": "horse battery",
        "secret = s3cr3tvalue": "s3cr3tvalue",
    }
    return [Secret("sentence", text, secret) for text, secret in lines.items()]


SECRETS: tuple[Secret, ...] = tuple(
    _keys() + _blocks() + _settings() + _json() + _commands() + _web() + _languages() + _sentences()
)

INNOCUOUS: tuple[str, ...] = (
    # about tokens, keys and passwords
    "token_limit = 128000", "max_tokens=4096", "tokens: 512", "token_count: 1024", "tokenLimit: 200000",
    "token: a unit of text", "context window: 200k tokens", "tokens_per_second: 84.2", "tokenizer: cl100k_base",
    "token_type: bearer", "token_url: https://login.example/oauth2/v2.0/token", "token_expires_in: 3600",
    "token budget: 8000", "the token is split into 3 pieces", "CSRF token: required", "each token costs $0.0000025",
    "credentials: ~/.aws/credentials2", "credentials: 'same-origin'", "credentials: include", 'credentials: "omit"',
    "private_key=/etc/ssl/private/server1.key", "password_file: /run/secrets/db1", "secret_name: prod/db/main2",
    "secret_arn: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db", "api_key_env: OPENAI_API_KEY",
    "password: required", "password: string", "Password: must be at least 12 characters",
    "password: str = Field(...)", "password: Optional[str] = None", "password = getpass.getpass()",
    "password=${DB_PASSWORD}", "password: <your password>", "password: {{ vault_password }}",
    "password: $DB_PASSWORD", "token = os.environ['GITHUB_TOKEN']", "api_key: YOUR_API_KEY",
    "api_key=your_api_key_here", "password: ********", "password: [redacted]", "token=<token>",
    "secret: ${{ secrets.TOKEN }}", "The password: see the fridge.", "the password is written on the fridge",
    "the password is 12 characters long", "Forgot your password? Reset it here.", '"password": "Enter your password"',
    '"password": "Password"', '<input type="password" name="password">', "password reset 2026-11-03",
    "password policy: 90 days", "password hashing with sha256", "password manager: 1Password 8",
    "passwordless login since v2.1", "password_min_length: 12", "password_reset_url: https://x.example/r1",
    "passed: 42, failed: 3", "PASS: test_login1", "pass: 12/14", "First pass: 120 files", "pass 2 of 3", "bypass=1",
    "def check_password(password: str) -> bool:", "if password == expected_password:", "self.password = password",
    "connect(user=user, password=password)", "login(token=token, secret=secret)", "token = get_token(user1)",
    "apiKey: config.apiKey1", "secretKey: process.env.SECRET_KEY2", "api_key=settings.api_key", "primary key: id1",
    "foreign_key: user_id2", "cache_key: user:42:profile", "sort_key=created_at1", "key: value1",
    "the key idea: 3 rooms", "monkey: 12345678", "keyboard: QWERTY104", "key_id: 42", "keyword: python3",
    "hotkey: ctrl+shift+p2", "public_key: id_ed25519.pub", "ssh-ed25519 keys are short", "key=lambda x1: x1",
    "press any key: F12", "secretary: room 1204", "the secret: 3 eggs", "secrets: inherit", "Secret Santa 2026",
    "secret garden: chapter 12",
    # names that look like prefixes
    "sk-learn-contrib-hdbscan-0.8.33", "pip install sk-learn-contrib-hdbscan-0.8.33",
    "pa-systems-for-events-24-channels-2026", "npm_config_registry_mirror_timeout_2026",
    "hf_transfer_enable_fast_downloads_2", "npm_package_version", "hf_hub_download",
    "ask-me-anything-about-the-whole-thing", "task_test_something_else_entirely",
    "pk-based-pagination-for-large-tables-2", "xai-explainability-toolkit-for-models",
    "pypi-server-with-authentication", "re_compile_pattern_with_flags_1234567890",
    "test_a_note_that_is_renamed_keeps_its_embedding_2", "live_index_watcher_thread_started_42",
    "glob-patterns-for-ignored-files-2", "sdk-platform-tools-35", "api-gateway-v2-staging-eu-west-1",
    "key-value-store-benchmark-2026", "fc-cache -fv", "sl.tar.gz", "v2.local.example.org",
    "AKIA is how an AWS key id begins", "ghp_ is the prefix of a GitHub token", "EAAA", "SKU: SK12345",
    "secret_manager_client_version_1", "pat: a gentle touch", "dp.get(state)", "ya29 is not a token", "SG.1",
    "dapi: 3 endpoints",
    # identifiers, hashes and numbers
    "commit 9692da2f3c1b4e5d6a7b8c9d0e1f2a3b4c5d6e7f",
    "sha256:3b8e0f8a5cdeaa5ad5b2cfea8b6f4f0d0c4a8f5b0e6a7d9c1f2e3d4c5b6a7980", "5f0c1a52-8a1b-4c6e-9d7e-0123456789ab",
    "sessionId: 01JCQ7Z3W8K5R2M9X4T6V0B1N8", "session_id=5f0c1a52-8a1b-4c6e", "md5 d41d8cd98f00b204e9800998ecf8427e",
    "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    'ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"', "at 12:30 we meet; ratio 3:2", "phone +49 30 901820",
    "ISBN 978-3-16-148410-0", "2026-11-16T08:25:13Z", "version 1.24.0rc1", "0x7ffee4c0b8a0", "10.0.0.1:8080",
    "AB12 CD34 EF56", "order REF-0200-3",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl kai@x",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4=\n-----END PUBLIC KEY-----",
    # addresses and headers
    "https://example.com:8080/a@b", "http://localhost:3000/@vite/client", "ssh://git@example.com:2222/x@v1",
    "git@github.com:kai/x.git", "mail kai@example.com", "https://medium.com/@kai/post-1", "http://[::1]:8080/a@b",
    "postgres://${USER}:${PASS}@db/x", "https://x.example/?page=2&sort=asc",
    "Authorization: required for all endpoints", "authorization: see RFC 7235",
    "the Authorization header carries 1 token", "bearer of good news", "Bearer token-based authentication",
    "Basic understanding of Python", "basic authentication is used", "bearer bonds", "Cookie: consent=yes",
    "Set-Cookie: theme=dark; Path=/", "cookie: chocolate chip", "Cookies are deleted after 30 days", "SameSite=Lax",
    "auth: required", "auth: Optional authentication handler.", "for_password = is_short or is_long",
    "| `OPENAI_API_KEY` | `gpt-5.4-mini` |", "author: kai2026", "author=kai", "authored by kai in 2026",
    # commands
    "ls -la --color=auto", "docker run -p 8080:80 nginx", "mkdir -p /tmp/x1", "ssh -p 2222 kai@x",
    "curl -s https://x.example/a1", "mysql -u root -p", "psql -p 5433 -U kai", "mytool --password-file /run/p1",
    "use --password to set it", "the --token flag is required", "zip -r x.zip folder1", "git push -u origin main",
    "cp -p a b", "curl -u $USER:$PASS https://x.example",
    # languages
    "Das Passwort wurde gestern geändert", "Le mot de passe doit contenir 12 caractères",
    "La contraseña debe tener 12 caracteres", "密码长度不少于12位", "パスワードを忘れた場合",
    "รหัสผ่านต้องยาวอย่างน้อย 12 ตัว",
    "Пароль должен содержать 12 символов", "비밀번호를 잊으셨나요?", "parola d'ordine",
)  # fmt: skip
