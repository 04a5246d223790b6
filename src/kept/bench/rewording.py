"""Queries in other words than the notes use, made without a model: words are replaced, and telling ones left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

_PAIRS = """
add include|agree consent|allow permit|answer reply|appointment meeting|ask request|backup copy|begin start
big large|bill invoice|boss manager|bug defect|build construct|buy purchase|call phone|cancel abandon
change alter|cheap inexpensive|check verify|child kid|choose select|city town|client customer|close shut
cost price|create make|database storage|deadline cutoff|decide settle|delete remove|deploy release
doctor physician|drive steer|email mail|employee worker|end finish|error failure|explain describe|fast quick
find discover|fix repair|flat apartment|flight plane|food meal|friend companion|garden yard|gift present
goal aim|happy glad|help assist|holiday vacation|home house|hurt injure|idea thought|illness disease
important essential|improve enhance|job work|keep retain|key code|language tongue|late delayed|lawyer attorney
learn study|leave depart|lose misplace|machine device|medicine drug|money cash|move relocate|need require
note remark|office workplace|old former|order sequence|password credential|pay settle|phone telephone
picture photo|plan intend|problem issue|project undertaking|promise pledge|question query|read study
reason cause|refuse reject|remember recall|rent lease|rule policy|run execute|safe secure|save store|say tell
send dispatch|server host|shop store|show display|sick ill|slow sluggish|small little|stop halt|store shop
street road|strong powerful|talk speak|task chore|teacher instructor|test trial|ticket pass|tired exhausted
tool utility|travel trip|update refresh|use employ|wait delay|want wish|watch observe|weather climate
wife spouse|work labour|write compose|wrong incorrect|young youthful
"""
SYNONYMS: Mapping[str, str] = dict(pair.split() for line in _PAIRS.split("\n") for pair in line.split("|") if pair)
_ENDINGS = ("", "s", "ed", "d", "ing")
_FEWEST_WORDS, _MOST_WORDS = 3, 6
_FEWEST_OTHERS = 2


def reword(words: Sequence[str], frequency: Counter[str]) -> str:
    """Return a query about a sentence, from its words without stop words.

    Words with a synonym are replaced. Of the others, the rarer half is left out: those are the words that would find
    the passage by themselves. ``frequency`` counts in how many passages a word is.
    """
    replaced = {at: synonym for at, word in enumerate(words) if (synonym := find_synonym(word.lower()))}
    others = [at for at in range(len(words)) if at not in replaced]
    others.sort(key=lambda at: -frequency[words[at].lower()])
    chosen = {*[*replaced][: _MOST_WORDS - _FEWEST_OTHERS], *others[: max(_FEWEST_OTHERS, len(others) // 2)]}
    query = dict.fromkeys(replaced.get(at, words[at]) for at in sorted(chosen))
    return " ".join([*query][:_MOST_WORDS]) if len(query) >= _FEWEST_WORDS else ""


def find_synonym(word: str) -> str | None:
    """Return another word for an English word, also for its plural and its past: 'moved' gives 'relocate'."""
    stems = (word.removesuffix(ending) for ending in _ENDINGS)
    candidates = (form for stem in stems for form in (stem, f"{stem}e"))
    return next((SYNONYMS[form] for form in candidates if form in SYNONYMS), None)
