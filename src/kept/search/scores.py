"""Scores: all evidence becomes one figure. Code that computes a score explains it too. All of this is pure.

**Fusion** adds up the evidence for each candidate of one query, by the numbers in `weights`.

**Confidence** in the hits of a query sets their scores and grades. The sums that rank the candidates of one query
cannot be compared with those of another: a well-answered question of twenty words gets a lower sum than three words
that happen to be in a text. So the scores of a query are scaled, until the first equals the confidence. The order does
not change.

Two questions are asked of the signals of a query. *Is there an answer?* Random words are in the notes too, but seldom
in one passage; a question about another subject shares a few words with some passage, but not its meaning. This decides
between weak and likely. *Is the first hit the answer?* It is if its sum is high and nothing else comes near: where
many passages are about the subject of a question, one of them is the answer, but often not the first. This decides
between likely and strong, so a hit after the first is strong only if it is about as good.

A similarity says little by itself: to one embedder all texts are alike, to another none. So the signal is the lead of
the nearest passage over the next ones. Only if hardly a word of the query is in the notes, as in another language, the
similarity itself counts, if the embedder knows the words of the query: nonsense has a lead too, but it is near to
nothing. In a script without spaces, single pairs of characters are in every text, and the signal is the share of the
query in runs of characters that a passage has literally.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from operator import mul

from kept.base.clock import DAY_MS
from kept.base.records import LIKELY_FROM, STRONG_FROM, ScorePart
from kept.base.values import frozen
from kept.base.visibility import PROJECTS_FOLDER, ProjectScope
from kept.base.words.segment import fold, is_unspaced
from kept.config.schema import QuerySettings
from kept.index.sqlite.rows import ChunkRow
from kept.search.candidates import CandidatePool, Evidence, QueryVector
from kept.search.weights import (
    ALL_WORDS_CONFIDENCE,
    AS_GOOD_FROM,
    COVERED_TRUST,
    FIRST_IS_RIGHT,
    JUST_LIKELY,
    LARGE_MEMORY_PASSAGES,
    LIKELY_SHARE,
    NEAR_AMONG_PASSAGES,
    NEAR_BY_DOUBLING,
    NEAR_FROM,
    NEAR_SHARE,
    NOTES,
    PROJECT_SHARE,
    RECENCY_HALF_LIFE_DAYS,
    RECENCY_SHARE,
    SMALL_MEMORY_PASSAGES,
    UNCOVERED_TRUST,
    UNKNOWN_FROM,
    UNSPACED_ANSWERED,
    UTTERANCE_TRUST,
    UTTERANCES,
    WITH_MEANING,
    WORDS_ONLY,
    AnsweredModels,
    CrowdModel,
    EvidenceWeights,
)

PARTS_OUTSIDE_THRESHOLD = ("recency", "when", "project")
"""Parts of a score that affect the order, but not whether a hit passes ``min_score``."""
BELOW = 1e-6
"""Difference of the scores of two candidates, one of which has to come after the other."""
ALL_WORDS = 0.999
"""All words: a share is a sum of floats, and may be just below 1."""
_RUN_LETTERS, _LETTERS_OF_IDEOGRAPH = 4, 2
"""A run has at least four letters, and an ideograph says as much as two."""
_MAX_RUN_CHARS = 200
_RUN_CANDIDATES = 5
_NEXT_IN_MEANING = 20
"""The nearest passage is compared with the median of those after it, up to this rank."""


@frozen
class Scored:
    """A candidate with its score."""

    chunk: ChunkRow
    evidence: Evidence
    score: float
    relevance: float
    """Score without the parts for recency, period and project. ``min_score`` is compared with it."""
    text: float | None
    """Score of its words, from 0 to 1; None if it has none of them."""
    vector: float | None
    """Score of its meaning, from 0 to 1; None if it has no vector."""
    explain: Callable[[], tuple[ScorePart, ...]]
    """Returns the parts of the score. They are put into words only for the few candidates that are returned."""
    added: tuple[ScorePart, ...] = ()
    """Parts that were added after fusion."""
    unscaled: float | None = None
    """Relevance before it was scaled to a confidence, which sets hits after the first apart. None before that."""

    def parts(self) -> tuple[ScorePart, ...]:
        """Return the parts of the score. They add up to it."""
        return (*self.explain(), *self.added)

    def plus(self, name: str, gain: float, why: str, *, relevance: float = 0.0) -> Scored:
        """Return a copy with a further part, and with ``relevance`` added to the relevance."""
        return replace(
            self,
            score=self.score + gain,
            relevance=self.relevance + relevance,
            added=(*self.added, ScorePart(name, gain, why)),
        )

    def boosted(self, name: str, gain: float, why: str) -> Scored:
        """Return a copy with a higher score, at most 1, and the same relevance."""
        gain = min(gain, 1.0 - self.score)
        return self.plus(name, gain, why) if gain > 0 else self

    def at_least(self, score: float, relevance: float, name: str, why: str) -> Scored:
        """Return a copy with at least this score and relevance."""
        gain = max(0.0, score - self.score)
        return self.plus(name, gain, why, relevance=max(0.0, relevance - self.relevance))

    def below(self, other: Scored, name: str, why: str, *, by: float = BELOW) -> Scored:
        """Return a copy with a lower score than another, but not a negative one, and at most the same relevance."""
        loss = max(-self.score, min(0.0, other.score - by - self.score))
        return self.plus(name, loss, why, relevance=min(0.0, other.relevance - self.relevance))


def rank(scored: Iterable[Scored]) -> list[Scored]:
    """Sort by score, best first. Ties go by path and line, so that the order of indexing does not matter."""
    return sorted(scored, key=lambda item: (-item.score, item.chunk.path, item.chunk.start_line, item.chunk.row))


# the weighted sum


def fuse_pool(
    pool: CandidatePool,
    evidence: Mapping[int, Evidence],
    settings: QuerySettings,
    vector: QueryVector | None,
    *,
    now_ms: int,
) -> list[Scored]:
    """Return the candidates that there is evidence for with their scores, best first.

    The fewer of the query's words any note has, the more the embedder is trusted with notes. A candidate that still
    waits for its vector is judged by its words alone: the share of the meaning would be a penalty for being new.
    """
    notes = utterances = vector_share(settings, vector)
    if settings.hybrid.vector_weight == "auto":
        coverages = (figures.coverage for row, figures in evidence.items() if pool.chunks[row].source != "sessions")
        trust = COVERED_TRUST + UNCOVERED_TRUST * (1.0 - max(coverages, default=0.0))
        notes, utterances = min(1.0, notes * trust), min(1.0, utterances * UTTERANCE_TRUST)
    ranked = []
    for row, figures in evidence.items():
        chunk = pool.chunks[row]
        share = utterances if chunk.source == "sessions" else notes
        meaning_share = share if row in pool.meaning else None
        ranked.append(score_chunk(chunk, figures, meaning_share, now_ms))
    return rank(ranked)


def vector_share(settings: QuerySettings, vector: QueryVector | None) -> float:
    """Return the share of meaning in a score: the one in the settings, or else the one measured for the embedder."""
    if vector is None:
        return 0.0
    fixed = settings.hybrid.vector_weight
    return vector.calibration.weight if fixed == "auto" else float(fixed)


def score_chunk(chunk: ChunkRow, evidence: Evidence, meaning_share: float | None, now_ms: int) -> Scored:
    """Return the weighted sum of the evidence. ``meaning_share`` is None for a chunk without a vector."""
    weights, share = UTTERANCES if chunk.source == "sessions" else NOTES, meaning_share or 0.0
    text, meaning, penalty = (
        sum([weight * getattr(evidence, name) for name, weight in side.items()])
        for side in (weights.text, weights.meaning, weights.penalties)
    )
    relevance = min(1.0, max(0.0, (1.0 - share) * text + share * meaning - penalty))
    age_days = max(0.0, (now_ms - chunk.timestamp_ms) / DAY_MS)
    recency = RECENCY_SHARE * 0.5 ** (age_days / RECENCY_HALF_LIFE_DAYS)
    boost = min(recency, 1.0 - relevance)  # a score is at most 1
    return Scored(
        chunk,
        evidence,
        relevance + boost,
        relevance,
        text if evidence.matched or evidence.expansions else None,
        None if meaning_share is None else meaning,
        partial(_explain, evidence, weights, share, boost, int(age_days)),
    )


def _explain(
    evidence: Evidence, weights: EvidenceWeights, meaning_share: float, boost: float, days: int
) -> tuple[ScorePart, ...]:
    """Return the parts of a score. They are put into words only for the few candidates that are returned."""
    parts = []
    for share, side in ((1.0 - meaning_share, weights.text), (meaning_share, weights.meaning)):
        for name, weight in side.items():
            figure = getattr(evidence, name)
            parts.append(ScorePart(name, share * weight * figure, f"{share * weight:.2f} × {figure:.3f}"))
    rest = sum(part.value for part in parts)  # a score is not negative, so penalties take no more than this
    for name, weight in weights.penalties.items():
        if figure := getattr(evidence, name):
            penalty = min(rest, weight * figure)
            rest -= penalty
            parts.append(ScorePart(name, -penalty, _PENALTIES[name]))
    if words := [*evidence.matched, *map(str, evidence.expansions)]:
        parts[0] = replace(parts[0], detail=f"{parts[0].detail} ({', '.join(words[:8])})")
    age = f"{days} day{'' if days == 1 else 's'} old" if days else "from today"
    return (*parts, ScorePart("recency", boost, age))


_PENALTIES = {
    "question": "it asks, and does not answer",
    "speaker": "said by another than the one named",
    "machine": "not said by a person",
}


# the project that the search is made in


def prefer_project(ranked: Sequence[Scored], scope: ProjectScope) -> list[Scored]:
    """Add to the score of the notes and conversations of a project, and rank again."""
    prefix = f"{PROJECTS_FOLDER}/{scope.name}/"
    return rank(
        scored.boosted("project", PROJECT_SHARE, f"of the project {scope.name}")
        if scored.chunk.path.startswith(prefix) or scored.chunk.path in scope.own_transcripts
        else scored
        for scored in ranked
    )


# confidence


@frozen
class Signals:
    """Figures that tell an answer from chance."""

    share: float
    """Largest share of the query, weighted by rarity, that a passage has together with its context."""
    together: float
    """Largest number of the query's words in one passage."""
    meaning: float | None = None
    """Lead in meaning of the nearest passage over the next ones; None if no vectors were compared."""
    nearest: float = 0.0
    """Similarity of the nearest passage, from 0 to 1."""
    most_by_meaning: float = 0.0
    """Highest confidence by similarity alone. It depends on the embedder, and on whether it knows the query."""
    first: float = 0.0
    """Sum of the first candidate."""
    crowd: float = 0.0
    """Logarithm of the number of candidates that come near it, with itself. Each other one counts less, the lower its
    sum is."""
    passages: int = LARGE_MEMORY_PASSAGES
    """Number of passages in the index."""
    query_words: int = 4
    """Number of words in the query, without stopwords."""
    unknown_words: int = 0
    """Number of them that no passage has."""
    runs: float | None = None
    """For a query in an unspaced script, its largest share in runs of characters that a passage has literally."""

    @property
    def features(self) -> tuple[float, ...]:
        """The inputs of `AnsweredModel`, in its order."""
        return (
            self.share,
            math.log1p(max(0.0, self.together - 2)),
            1 / max(2, self.query_words),
            math.sqrt(self.meaning or 0.0),
            self.unknown_words / max(1, self.query_words),
        )

    @property
    def size(self) -> float:
        """Size of the memory on a logarithmic scale, from 0 (small) to 1 (large)."""
        scale = math.log(LARGE_MEMORY_PASSAGES / SMALL_MEMORY_PASSAGES)
        return min(1.0, max(0.0, math.log(max(1, self.passages) / SMALL_MEMORY_PASSAGES) / scale))


def read_signals(
    ranked: Sequence[Scored], pool: CandidatePool, query_text: str = "", vector: QueryVector | None = None
) -> Signals:
    """Return the signals of the ranked candidates of a query."""
    terms = pool.terms
    texts = {weighted.term.text for weighted in terms}
    # A compound, such as an identifier, whose parts are terms as well, does not count.
    counts = {text: float(len(text.split()) == 1 or not texts.issuperset(text.split())) for text in texts}
    known = sum(counts[weighted.term.text] for weighted in terms if weighted.rows)
    words = round(sum(counts.values()))
    first = ranked[0].relevance if ranked else 0.0
    # A passage far below the first, such as one that has the words of the query only above it, lends it no confidence.
    near = [item for item in ranked if item.relevance >= LIKELY_SHARE * first]
    # Recency may have put one first that fits less than others: those count as equal to it.
    rivals = [math.exp(min(0.0, item.relevance / first - 1) / NEAR_SHARE) for item in ranked[1:] if first > 0]
    is_in_pairs = 2 * sum(weighted.term.kind in ("pair", "prefix") for weighted in terms) >= len(terms) > 0
    best_texts = (
        [f"{item.chunk.text}\n{item.chunk.heading}" for item in ranked[:_RUN_CANDIDATES]] if is_in_pairs else []
    )
    return Signals(
        share=max((item.evidence.reach for item in near), default=0.0),
        # A word that another stands for is part of a word.
        together=max(
            (sum(counts[text] * share for text, share in item.evidence.shares.items()) for item in near), default=0.0
        ),
        meaning=_meaning_lead(ranked),
        nearest=max((item.evidence.meaning for item in ranked), default=0.0),
        most_by_meaning=vector.most_by_meaning if vector else 0.0,
        first=first,
        crowd=math.log1p(sum(rivals)),
        passages=pool.passages,
        query_words=words,
        unknown_words=max(0, words - max(1, round(known))),
        runs=max((share_in_runs(query_text, text) for text in best_texts), default=0.0) if is_in_pairs else None,
    )


def _meaning_lead(ranked: Sequence[Scored]) -> float | None:
    meanings = [item.evidence.meaning for item in ranked if item.vector is not None]
    if not meanings:
        return None
    nearest, *others = nlargest(_NEXT_IN_MEANING, meanings)
    if len(others) < 3:
        return nearest - (others[-1] if others else nearest)
    return nearest - (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2


def share_in_runs(query: str, text: str) -> float:
    """Return the share of a query's unspaced characters that are in a run of characters of a text."""
    text = "".join(fold(text).lower().split())
    total = covered = 0
    for word in fold(query[:_MAX_RUN_CHARS]).lower().split():
        run = "".join(filter(is_unspaced, word))
        total += len(run)
        letters = [_LETTERS_OF_IDEOGRAPH if "\u3400" <= letter <= "\u9fff" else 1 for letter in run]
        covered_to = 0
        for at in range(len(run)):
            ends = range(at + 1, min(at + _RUN_LETTERS, len(run)) + 1)
            end = next((end for end in ends if sum(letters[at:end]) >= _RUN_LETTERS), None)
            if end and run[at:end] in text:
                covered += end - max(at, covered_to)
                covered_to = end
    return covered / total if total else 0.0


def estimate_confidence(
    signals: Signals,
    *,
    models: AnsweredModels | None = None,
    unspaced: CrowdModel = UNSPACED_ANSWERED,
    right: CrowdModel = FIRST_IS_RIGHT,
) -> float:
    """Return the score of the first hit: likely or better if there is an answer, strong if the hit is the answer."""
    answered = estimate_answered(signals, models, unspaced=unspaced)
    is_right = _chance(right.base + right.figure * signals.first - right.crowd * signals.crowd)
    if answered >= LIKELY_FROM and is_right >= STRONG_FROM:
        return is_right
    return min(answered, JUST_LIKELY)


def estimate_answered(
    signals: Signals, models: AnsweredModels | None = None, *, unspaced: CrowdModel = UNSPACED_ANSWERED
) -> float:
    """Return how sure it is, from 0 to 1, that there is an answer. 0.25 is the bound that was chosen on folds."""
    is_known = signals.share > 0 and signals.unknown_words < UNKNOWN_FROM * signals.query_words
    if signals.share >= ALL_WORDS:
        least = ALL_WORDS_CONFIDENCE
    elif signals.runs or is_known:
        least = 0.0
    else:
        # Hardly a word of the query is in the notes, so it may be in another language, and the similarity counts. Among
        # more passages, one is nearer by chance.
        doublings = math.log2(max(1.0, signals.passages / NEAR_AMONG_PASSAGES))
        near_from = NEAR_FROM + NEAR_BY_DOUBLING * doublings
        least = min(signals.most_by_meaning, LIKELY_FROM * signals.nearest / near_from)
    if signals.runs is not None:
        logit = unspaced.base + unspaced.figure * math.sqrt(signals.runs) - unspaced.crowd * signals.crowd
    elif signals.share <= 0:
        return least
    else:
        models = models or (WORDS_ONLY if signals.meaning is None else WITH_MEANING)
        features = 1.0, *signals.features
        small, large = (sum(map(mul, model, features)) for model in (models.small, models.large))
        logit = signals.size * large + (1 - signals.size) * small
    return max(_chance(logit), least)


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, logit)))  # `exp` overflows from 710 on


def confidence_after_reranking(
    confidence: float, before: Sequence[Scored], after: Sequence[Scored], weight: float
) -> float:
    """Return the confidence once a model has read the best passages: its judgement of the first counts here too."""
    if not after:
        return confidence
    first = after[0]
    before_relevance = next(scored.relevance for scored in before if scored.chunk.row == first.chunk.row)
    if first.relevance == before_relevance:  # the model has read nothing
        return confidence
    return min(1.0, max(0.0, first.relevance + (1 - weight) * (confidence - before_relevance)))


# scores


def calibrate(ranked: Sequence[Scored], confidence: float, signals: Signals) -> list[Scored]:
    """Scale the scores, so that the best relevance equals ``confidence``. The order is the same.

    Hits that are not about as good as the first are scaled to likely at most. If there is an answer, a hit is likely
    from `LIKELY_SHARE` of the first sum on, however sure it is that there is one: it may be the answer.
    """
    best_relevance = max((scored.relevance for scored in ranked), default=0.0)
    best_score = max((scored.score for scored in ranked), default=0.0)
    if best_relevance <= 0:
        return list(ranked)
    first = min(confidence * best_score / best_relevance, 1.0)
    likely = min(confidence, JUST_LIKELY)
    power = math.log(likely / LIKELY_FROM) / -math.log(LIKELY_SHARE) if likely >= LIKELY_FROM else 1.0
    scaled = []
    for scored in ranked:
        share = scored.score / best_score
        best = first if share >= AS_GOOD_FROM else first * min(1.0, JUST_LIKELY / max(confidence, JUST_LIKELY))
        factor = best * share**power / scored.score if scored.score > 0 else 0.0
        scaled.append(
            replace(
                scored,
                score=scored.score * factor,
                relevance=scored.relevance * factor,
                explain=partial(_scaled_parts, scored, factor, confidence, signals),
                added=(),
                unscaled=scored.relevance,
            )
        )
    return scaled


def _scaled_parts(scored: Scored, factor: float, confidence: float, signals: Signals) -> tuple[ScorePart, ...]:
    parts = scored.parts()
    outside = [replace(part, value=part.value * factor) for part in parts if part.name in PARTS_OUTSIDE_THRESHOLD]
    rest = [part for part in parts if part.name not in PARTS_OUTSIDE_THRESHOLD]
    words = "every word" if signals.share >= ALL_WORDS else f"{signals.share:.0%} of the words"
    lead = signals.meaning
    nearest = "" if lead is None else f"; the closest match in meaning is {lead:.2f} ahead of the next"
    reason = f"confidence {confidence:.2f}: one passage contains {words}{nearest}"
    return (*rest, ScorePart("fit", (factor - 1) * sum(part.value for part in rest), reason), *outside)
