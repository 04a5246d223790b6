"""Measure redaction: hit rate, false positive rate and cost. Run: python -m benchmarks.redaction

The cases are in tests/support/redaction_cases.py; the tests require the same rates.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from kept.base.redact import redact
from tests.support.redaction_cases import INNOCUOUS, SECRETS

LEAST_FOUND, MOST_FALSE = 0.9, 0.02
_TIMED_CHARS = 2_000_000


def main() -> int:
    missed = [case for case in SECRETS if case.secret in redact(case.text)]
    false = [text for text in INNOCUOUS if redact(text) != text]
    found, wrong = 1 - len(missed) / len(SECRETS), len(false) / len(INNOCUOUS)
    totals, misses = Counter(case.kind for case in SECRETS), Counter(case.kind for case in missed)
    for kind in sorted(totals):
        print(f"{kind:<20} {totals[kind] - misses[kind]:>3} of {totals[kind]:>3}")
    for case in missed:
        print(f"missed, {case.kind}: {case.text!r}")
    for text in false:
        print(f"false: {text!r} → {redact(text)!r}")
    print(f"\nhit rate {found:.3f} ({len(SECRETS)} secrets), false positive rate {wrong:.3f} ({len(INNOCUOUS)} texts)")
    print(f"{_ns_per_char():.0f} ns of CPU per character of ordinary text")
    return 0 if found >= LEAST_FOUND and wrong <= MOST_FALSE else 1


def _ns_per_char() -> float:
    prose = Path(__file__).resolve().parent.parent / "docs/retrieval.md"
    text = prose.read_text(encoding="utf-8")[:1_000]
    redact(text)
    started = time.process_time()
    for _ in range(_TIMED_CHARS // len(text)):
        redact(text)
    return (time.process_time() - started) / _TIMED_CHARS * 1e9


if __name__ == "__main__":
    sys.exit(main())
