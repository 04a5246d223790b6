"""Fits the models of the confidence to the signals of queries, and chooses the bound between weak and likely."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kept.base.records import LIKELY_FROM, STRONG_FROM
from kept.search.scores import ALL_WORDS, Signals, estimate_answered
from kept.search.weights import AnsweredModel, AnsweredModels, CrowdModel

RIDGE = 1.0
WEIGHTS = {"answer": 2.0, "random": 0.7, "foreign": 1.0, "length": 0.3}
"""Weight of each kind of query for the question of whether there is an answer."""
ALLOWED_LOST = 0.05
"""Largest share of answers that the bound refuses on any set that it is chosen on."""
UNSPACED_LOST = 0.05
"""The same for scripts without spaces. There are two sets, and the bound is chosen on both."""
FEWEST_ANSWERS = 20
OTHER_LANGUAGES = ("xquad_cross",)
"""Sets with questions in other languages than the notes. Their words tell next to nothing, so they have no say."""
RIGHT_FROM = 0.8
"""Probability of being right from which a first hit is strong."""


@dataclass
class Asked:
    """Signals of a query, and what its first ten hits are worth."""

    set: str
    kind: str
    signals: Signals
    is_right: bool
    """The first hit is the answer."""
    is_answered: bool
    """The answer is among the first ten hits."""
    is_near: bool
    """The hit with the answer is likely, if the first is."""


def original(name: str) -> str:
    """Return the set that a set of another size was made from."""
    return re.split("[@+%:]", name)[0]


# is there an answer?


def learn_answered(asked: Sequence[Asked]) -> AnsweredModels:
    """Fit the models for spaced scripts. Queries of which a passage has all words, or none, are graded by rules."""
    asked = [query for query in asked if query.signals.runs is None and query.set not in OTHER_LANGUAGES]
    usable = [query for query in asked if 0 < query.signals.share < ALL_WORDS]
    usable = [query for query in usable if query.kind != "answer" or query.is_answered]
    fitted = fit(usable, lambda query: query.kind == "answer", _row_by_size, WEIGHTS)
    half = (len(fitted) - 2) // 2
    small = AnsweredModel(fitted[-1], *fitted[:half])
    large = AnsweredModel(fitted[-1] + fitted[-2], *fitted[half : 2 * half])
    answers = [query for query in asked if query.kind == "answer" and query.is_answered and query.signals.share > 0]
    models = AnsweredModels(small, large)
    bounds = [
        choose_bound([query for query in answers if (query.signals.size >= 0.5) == is_large], models)
        for is_large in (False, True)
    ]
    small_logits, large_logits = (_logit_of(LIKELY_FROM) - bound for bound in bounds)
    return AnsweredModels(_shifted(small, small_logits), _shifted(large, large_logits))


def _row_by_size(signals: Signals) -> list[float]:
    size, features = signals.size, signals.features
    return [*((1 - size) * figure for figure in features), *(size * figure for figure in features), size]


def shift(models: AnsweredModels, logits: float) -> AnsweredModels:
    """Return models that are more sure of everything by ``logits``."""
    return AnsweredModels(_shifted(models.small, logits), _shifted(models.large, logits))


def _shifted(model: AnsweredModel, logits: float) -> AnsweredModel:
    return model._replace(base=round(model.base + logits, 2))


def choose_bound(answers: Sequence[Asked], models: AnsweredModels) -> float:
    """Return the highest logit below which no set has more than `ALLOWED_LOST` of its answers.

    Memories that were made from one set count as one, and those with few questions not at all.
    """
    by_set: dict[str, list[float]] = {}
    for query in answers:
        answered = estimate_answered(query.signals, models)
        by_set.setdefault(original(query.set), []).append(
            9.0 if query.signals.share >= ALL_WORDS else _logit_of(answered)
        )
    return min(float(np.quantile(logits, ALLOWED_LOST)) for logits in by_set.values() if len(logits) >= FEWEST_ANSWERS)


def learn_unspaced(asked: Sequence[Asked]) -> CrowdModel:
    """Fit the model for scripts without spaces, with a bound that refuses `UNSPACED_LOST` of the answers.

    Sets whose notes are in another script than the questions have nothing to tell: no answer has a run in common.
    """
    usable = [query for query in asked if query.signals.runs is not None and query.signals.share > 0]
    usable = [query for query in usable if query.kind != "answer" or query.is_answered]
    same_script = {query.set for query in usable if query.kind == "answer" and query.signals.runs}
    usable = [query for query in usable if query.set in same_script]

    def row_of(signals: Signals) -> list[float]:
        return [math.sqrt(signals.runs or 0.0), -signals.crowd]

    *factors, base = fit(usable, lambda query: query.kind == "answer", row_of, WEIGHTS)
    answers = [query.signals for query in usable if query.kind == "answer"]
    logits = [base + float(np.dot(factors, row_of(signals))) for signals in answers]
    return CrowdModel(round(base + _logit_of(LIKELY_FROM) - float(np.quantile(logits, UNSPACED_LOST)), 2), *factors)


# is the first hit the answer?


def learn_right(asked: Sequence[Asked]) -> CrowdModel:
    """Fit the model to questions that have an answer; the other question is asked first."""
    usable = [query for query in asked if query.kind == "answer"]
    first, crowd, base = fit(
        usable, lambda query: query.is_right, lambda signals: [signals.first, -signals.crowd], {"answer": 1.0}
    )
    return CrowdModel(round(base + _logit_of(STRONG_FROM) - _logit_of(RIGHT_FROM), 2), first, crowd)


# logistic models


def _logit_of(chance: float) -> float:
    return math.log(max(chance, 1e-12) / max(1 - chance, 1e-12))


def fit(
    asked: Sequence[Asked],
    target_of: Callable[[Asked], bool],
    row_of: Callable[[Signals], list[float]],
    weights: dict[str, float],
) -> list[float]:
    """Return the coefficients of a logistic model and its constant. Each set counts the same, and none is negative.

    Newton's method with a ridge. Figures whose coefficient would be negative are left out.
    """
    matrix = np.array([row_of(query.signals) for query in asked])
    target = np.array([float(target_of(query)) for query in asked])
    sizes: dict[tuple[str, str], int] = {}
    for query in asked:
        sizes[query.set, query.kind] = sizes.get((query.set, query.kind), 0) + 1
    weight = np.array([100 * weights[query.kind] / sizes[query.set, query.kind] for query in asked])
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-9
    matrix = np.c_[(matrix - mean) / scale, np.ones(len(matrix))]
    free = np.ones(matrix.shape[1], dtype=bool)
    fitted = _fit_free(matrix, target, weight, free)
    while (fitted[:-1] < 0).any():
        free[:-1] &= fitted[:-1] >= 0
        fitted = _fit_free(matrix, target, weight, free)
    factors = fitted[:-1] / scale
    return [round(float(factor), 2) for factor in factors] + [round(float(fitted[-1] - factors @ mean), 2)]


def _fit_free(matrix: np.ndarray, target: np.ndarray, weight: np.ndarray, free: np.ndarray) -> np.ndarray:
    matrix = matrix * free
    ridge = RIDGE * np.diag([1.0] * (matrix.shape[1] - 1) + [0.0])
    fitted = np.zeros(matrix.shape[1])
    for _ in range(60):
        chance = 1 / (1 + np.exp(-np.clip(matrix @ fitted, -50, 50)))
        curve = (matrix * (weight * chance * (1 - chance))[:, None]).T @ matrix + ridge
        step = np.linalg.solve(curve, matrix.T @ (weight * (target - chance)) - ridge @ fitted)
        fitted = fitted + step
        if np.abs(step).max() < 1e-6:
            break
    return fitted
