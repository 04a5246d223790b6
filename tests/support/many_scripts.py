"""Notes in nine scripts, and the answer of a search in a form that can be compared."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from kept import Memory

SCRIPTS = {
    "latin": "harbour engine parrot seeds running runner café naïve getUserName ref-0200-3 backup",
    "greek": "λιμάνι μηχανή παπαγάλος σπόρος τρέχω",
    "cyrillic": "гавань двигатель попугай семена бегун",
    "arabic": "ميناء محرك ببغاء بذور عداء",
    "hebrew": "נמל מנוע תוכי זרעים רץ",
    "devanagari": "बंदरगाह इंजन तोता बीज धावक",
    "thai": "ท่าเรือเครื่องยนต์ นกแก้ว เมล็ดพันธุ์ นักวิ่ง ฉันชอบนกแก้ว",
    "chinese": "港口 发动机 鹦鹉 种子 跑步者 我喜欢鹦鹉",
    "hangul": "항구 엔진 앵무새 씨앗 달리기",
}
WORDS = {script: text.split() for script, text in SCRIPTS.items()}
ENDINGS = ["", " #bird", " #area/home", " #bird #area", " [[a1]]", " (until 2025-12-01)", "?", " ~~old~~"]


def sentence(rng: random.Random, script: str, length: int) -> str:
    others = WORDS[rng.choice([*WORDS])]
    words = [rng.choice(WORDS[script] if rng.random() < 0.9 else others) for _ in range(length)]
    return ("" if script in ("thai", "chinese") and rng.random() < 0.5 else " ").join(words)


def note_text(rng: random.Random) -> str:
    script = rng.choice([*WORDS])
    parts = [f"# {sentence(rng, script, 2)}"] if rng.random() < 0.6 else []
    for _ in range(rng.randint(1, 4)):
        line = sentence(rng, script, rng.randint(1, 12))
        parts.append(line + rng.choice(ENDINGS))
        if rng.random() < 0.3:
            parts.append(f"## {sentence(rng, script, 1)}")
    text = "\n\n".join(parts) + "\n"
    if rng.random() < 0.2:
        fields = [f"aliases: [{rng.choice(WORDS[script])}]", "tags: [bird]", f"created: 2025-11-0{rng.randint(1, 9)}"]
        return "\n".join(["---", *fields, "---", text])
    return text


def describe(memory: Memory, query: str, **options: Any) -> Any:
    """Return hits in their order, with parts and grade and every bit of the score, and all else that is not a time."""
    result = memory.search(query, **options)
    hits = [(asdict(hit), hit.score.hex()) for hit in result.hits]
    return hits, [asdict(dropped) for dropped in result.dropped], result.degraded, result.answered, result.period
