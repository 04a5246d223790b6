"""Recognises keys by their own format, anywhere in a text.

The formats are those that the services document or that public scanners agree on. Packages that ship such rules
(detect-secrets, CredSweeper, whispers, trufflehog3) report lines instead of positions, or bring a model and dozens of
dependencies; so the table is our own.

A search for the literal part comes first, which costs nanoseconds; a pattern is compiled and tried only where it
occurs. Every pattern takes linear time: it is anchored at the literal, and its repeats are bounded or possessive.
"""

from __future__ import annotations

from collections.abc import Iterator

from kept.base.redact import Span, compiled

_MIXED = r"(?=[A-Za-z_-]{0,60}[0-9])"
_LETTERS_AND_DIGITS = _MIXED + r"[A-Za-z0-9]{%d,}+"
_WITH_DASHES = _MIXED + r"[A-Za-z0-9_-]{%d,}+"
_HEX = r"[0-9a-fA-F]{%d,}+"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_RANDOM_RUN = r"(?=(?:[A-Za-z0-9]{1,24}[_-]){0,4}[A-Za-z0-9]{16})"
"""Sixteen letters and digits in a row: 'sk-learn-contrib' has no such run, a key does."""
_UPPER_LOWER_DIGIT = r"(?=[^A-Z\s]{0,60}[A-Z])(?=[^a-z\s]{0,60}[a-z])"


_FORMATS = (
    # Models
    (
        rf"(?:(?:ant|proj|svcacct|admin|or|lf|helicone)-[A-Za-z0-9_-]{{16,}}+|{_RANDOM_RUN}{_WITH_DASHES % 16})",
        "sk- pk-",
    ),
    (r"[A-Za-z0-9]{30,}+", "hf_ api_org_"),
    (_RANDOM_RUN + _UPPER_LOWER_DIGIT + _WITH_DASHES % 24, "pa-"),
    (r"[A-Za-z0-9+/]{80,}+={0,2}", "ABSK"),
    # Cloud and hosting
    (r"[A-Z0-9]{16}(?![A-Za-z0-9])", "AKIA ASIA ABIA ACCA AROA AIDA"),
    (r"[A-Za-z0-9_-]{30,}+", "1//0"),
    (_HEX % 32, "dop_v1_ doo_v1_ dor_v1_ dapi pul- key-"),
    (_WITH_DASHES % 20, "tskey- HRKU- sbp_ sb_secret_ cfut_ cfat_"),
    (_LETTERS_AND_DIGITS % 20, "rnd_ nfp_ napi_ vcp_ vci_ vca_ vcr_ vck_ mdb_sa_sk_"),
    (r"[A-Za-z0-9_.-]{20,}+", "ya29. pscale_tkn_ pscale_pw_ pscale_oauth_ hvs. hvb. hvr."),
    (r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{30,}+", "dp."),
    (r"[A-Za-z0-9+/=,_-]{20,}+", "fm1_ fm2_ fo1_"),
    (r"[A-Za-z0-9_-]{40,}+", "ops_eyJ"),
    (r"[0-9a-f]{24}-[0-9a-f]{100,}+", "v1.0-"),
    (r"(?=[a-z_]*+[A-Z0-9-])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])", "kept_"),  # `kept token create`; no name in a program
    # Code and packages
    (r"[A-Za-z0-9_]{20,}+", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_"),
    (
        r"[A-Za-z0-9_.-]{15,}+",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- gloas- glimt- glagent- glffct- glwt-",
    ),
    (r"[A-Za-z0-9_=-]{20,}+", "ATATT3 ATCTT3 ATBB"),
    (_LETTERS_AND_DIGITS % 30, "npm_ rubygems_ CLOJARS_ oy2 live_ test_"),
    (_LETTERS_AND_DIGITS % 40, "AKCp cmVmdGtu squ_ sqp_ sqa_"),
    # Messages and mail
    (r"[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+", "xox"),
    (r"[A-Za-z0-9-]{10,}+", "xapp-"),
    (r"[A-Za-z0-9_-]{16,80}+\.[A-Za-z0-9_-]{16,}+", "SG."),
    (r"[0-9a-f]{32}(?![A-Za-z0-9])", "SK"),
    (r"[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,}+", "re_"),
    (r"[A-Za-z0-9_-]{60,}+", "mfa."),
    (r"[A-Za-z0-9]{14}\.[0-9a-f]{64}", "pat"),
    # Payments and shops
    (r"(?:(?:org_)?(?:live|test)_[A-Za-z0-9]{10,}+|[0-9a-f]{40,}+)", "sk_ rk_ pk_"),
    (r"[A-Za-z0-9+/=]{16,}+", "whsec_"),
    (_HEX % 24, "shpat_ shpss_ shpca_ shppa_ shptka_"),
    (_LETTERS_AND_DIGITS % 60, "EAA"),
    (r"[A-Za-z0-9]{12,}+", "rzp_live_ rzp_test_"),
    (r"(?:_TEST)?-[A-Za-z0-9-]{20,}+", "FLWSECK"),
    (r"(?:production|sandbox)\$[A-Za-z0-9$]{20,}+", "access_token$"),
    # Work and monitoring
    (_LETTERS_AND_DIGITS % 32, "secret_"),
    (r"[A-Za-z0-9+/=_-]{30,}+", "sntrys_ glc_"),
    (r"[A-Z0-9]{20,}+\.[A-Z0-9]{40,}+", "dt0c01."),
    (r"[A-Za-z0-9_.-]{60,}+", "sl."),
    (r"[a-z0-9]{30}(?![A-Za-z0-9])", "oauth:"),
    # Services of several kinds
    (_UUID, "access-sandbox- access-production- access-development- sdk- mob- api-"),
    (r"[A-Za-z0-9_-]{20,}+", "AIza GOCSPX- sq0atp- sq0csp- sq0idp- EAAA"),
    (
        _LETTERS_AND_DIGITS % 24,
        "gsk_ r8_ fw_ jina_ e2b_ tgp_v1_ lin_api_ lin_oauth_ ntn_ tfp_ glsa_ hcaik_ phx_ phc_ sntryu_",
    ),
    (
        _WITH_DASHES % 24,
        "pplx- xai- nvapi- csk- tvly- lsv2_ pcsk_ fc- pypi- dckr_pat_ dckr_oat_ CCIPAT_ CCIPRJ_ bkua_ sgp_ xkeysib- "
        "xsmtpsib- figd_ CFPAT- PMAK- NRAK- NRAL- NRII-",
    ),
    # Keys and signed claims
    (r"[A-Z0-9]{20,}+", "AGE-SECRET-KEY-"),
    (r"[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+){0,3}", "eyJ"),
    (r"(?:local|public)\.[A-Za-z0-9_-]{30,}+(?:\.[A-Za-z0-9_-]++)?", "v2. v3. v4."),
    (r"[A-Za-z0-9+/=\s]{20,}+", "b3BlbnNzaC1rZXktdjE"),
)
PREFIXES = {prefix: tail for tail, prefixes in _FORMATS for prefix in prefixes.split()}
"""Start of a key, and the pattern of the rest."""


REPEATED = (
    r"\b(?:sk|pa|pk|rk)[-_][A-Za-z0-9_*…-]{6,}+|\bAIza[A-Za-z0-9_*…-]{6,}+|[A-Za-z0-9_-]{2,}+\*{3,}+[A-Za-z0-9_-]{0,8}"
)
"""A key as services repeat it in an error: short, or with its middle masked. For messages only, where redacting a
harmless word does no damage."""


_TOKEN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

SHAPES: tuple[tuple[str, str, str], ...] = (
    (
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+(?:-----END [^-\n]{0,60}-----)?",
        "",
    ),
    ("Private-Lines:", r"Private-Lines: [0-9]{1,4}(?:\r?\n[A-Za-z0-9+/=]{1,80})+", ""),
    (":AA", r":AA(?<=[0-9]{7}:AA)[A-Za-z0-9_-]{30,}+", "0123456789"),  # Telegram
    (".", r"\.(?<=[A-Za-z0-9_-]{23}\.)[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,}+", _TOKEN),  # Discord
    ("Q~", r"Q~(?<=[A-Za-z0-9_~.]{3}[0-9]Q~)[A-Za-z0-9_~.-]{31,}+", _TOKEN + "~."),  # Azure client secret
    ("JQQJ9", r"JQQJ9(?<=[A-Za-z0-9]{40}JQQJ9)[A-Za-z0-9+/=]{20,}+", _TOKEN),  # Azure
    ("+ASt", r"\+ASt(?<=[A-Za-z0-9+/]{70}\+ASt)[A-Za-z0-9+/]{4,}+={0,2}", _TOKEN + "+/"),  # Azure storage
    (".atlasv1.", r"\.atlasv1\.[A-Za-z0-9_=-]{50,}+", _TOKEN),
    ("-us", r"-us(?<=[0-9a-f]{32}-us)[0-9]{1,2}(?![A-Za-z0-9])", "0123456789abcdef"),  # Mailchimp
    ("$", r"\$(?:1|2[abxy]|5|6|7|y|apr1|argon2(?:id|i|d))\$[A-Za-z0-9./$=,+-]{20,}+", ""),  # hashed passwords
)
"""Text without which the pattern cannot match, the pattern, and the characters that belong to the key if they directly
precede the match."""
_MAX_CHARS_BEFORE = 120
_ESCAPE_BEFORE = r"(?:\\[nrtbf]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})\Z"


def find_keys(text: str, words: str) -> Iterator[Span]:
    """Yield the spans of keys. ``words`` are the words of the text that are long enough to be keys."""
    for prefix in PREFIXES:
        if prefix in words:
            yield from _find_prefixed(text, prefix)
    for keyword, pattern, before in SHAPES:
        if keyword in text:
            yield from _find_shaped(text, pattern, before)


def _find_prefixed(text: str, prefix: str) -> Iterator[Span]:
    tail = compiled(PREFIXES[prefix])
    at = text.find(prefix)
    while at >= 0:
        end = at + len(prefix)
        if _begins_here(text, at):
            match = tail.match(text, end)
            if match:
                end = match.end()
                yield at, end
        at = text.find(prefix, end)


def _begins_here(text: str, at: int) -> bool:
    """Return whether a key can begin here: not after a letter, digit or joint, unless of an escape: '\\nghp_…'."""
    before = text[at - 1] if at else " "
    if not before.isascii() or not (before.isalnum() or before in "_-"):
        return True
    return compiled(_ESCAPE_BEFORE).search(text[max(0, at - 6) : at]) is not None


def _find_shaped(text: str, pattern: str, before: str) -> Iterator[Span]:
    for match in compiled(pattern).finditer(text):
        head = text[max(0, match.start() - _MAX_CHARS_BEFORE) : match.start()]
        yield match.start() - len(head) + len(head.rstrip(before)), match.end()
