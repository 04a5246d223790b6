"""Equivalents: words that people use for the same thing, such as k8s and Kubernetes.

Each line is a group, and every word of it finds the others. A group belongs here if its words can replace each other in
nearly every note, and if neither their stem nor a typo connects them. Words that merely resemble each other in meaning
are left to the embedder. Write the words as they are indexed: lower case, without accents, one word each.
"""

from __future__ import annotations

_GROUPS = """
    k8s kubernetes
    postgres postgresql pg psql
    db database
    js javascript
    ts typescript
    py python
    tf terraform
    gh github
    mac macos
    auth authentication
    authn authentication
    authz authorization authorisation
    repo repository
    config configuration cfg
    prod production
    dev development
    env environment
    doc docs documentation
    dir directory folder
    msg message
    app application
    info information
    admin administrator
    perf performance
    infra infrastructure
    deps dependencies
    i18n internationalization internationalisation
    l10n localization localisation
    a11y accessibility
    o11y observability
    pw pwd password passphrase
    phone telephone tel
    cellphone mobile
    tv television telly
    photo photograph pic
    bday birthday
    appt appointment
    addr address
    apt apartment flat
    fridge refrigerator
    bike bicycle
    plane airplane aeroplane
    vet veterinarian veterinary
    mom mum mother
    dad father
    grandma grandmother
    grandpa grandfather
    kid kids child children
    qty quantity
    vs versus
    cv resume
    wifi wlan
""".strip().split("\n")


def _by_word() -> dict[str, tuple[str, ...]]:
    equivalents: dict[str, tuple[str, ...]] = {}
    for group in _GROUPS:
        words = group.split()
        for word in words:
            others = tuple(other for other in words if other != word)
            equivalents[word] = (*equivalents.get(word, ()), *others)
    return equivalents


EQUIVALENTS = _by_word()
"""The equivalents of each word that has any."""
