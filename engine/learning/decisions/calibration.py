"""Calibrates scores by how earlier scores came true. Pure.

`Calibration` is for the Twin's own probability: a linear correction in log-odds, and above `CREDIBLE_BELOW` a cap by
how often scores as high came true. `KindCalibration` is for the whole confidence (SPEC 8.6): the outcomes of a kind of
card count most, and the score moves a card within its kind. Learning from a case takes constant time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

CREDIBLE_BELOW = 0.75
"""Up to here a score needs no outcomes of its own to be believed."""

PRIOR_SHARE, PRIOR_STRENGTH, PRIOR_FADES_FROM = 0.5, 8.0, 12.0
"""The prior for scores above `CREDIBLE_BELOW`: this share of them comes true, with the weight of this many cases. With
12 of 12 the cap is 0.8. From `PRIOR_FADES_FROM` outcomes on the prior fades, or it would hold down what comes true nine
times in ten."""

FIRST = 3
"""The first so many decisions on each kind make the base rate of new kinds."""

BASE_STRENGTH = 4.0
"""The base rate itself is pulled towards a half as if that had been seen in so many decisions."""

KIND_STRENGTH = 3.0
"""The share approved of a kind is pulled towards the base rate of new kinds as if that had been seen so often."""

KIND_WINDOW = 24.0
"""Of a kind about so many of its newest decisions count, of all kinds for their mean score about `OVERALL_WINDOW`."""

OVERALL_WINDOW = 100.0

UNDECIDED_MOVE = 0.1
"""The score moves a kind without decisions by at most so much; with decisions this limit grows towards 1."""

SLOPE, SLOPE_SPREAD = 14.0, 8.0
"""Log-odds that 1 more of the score is worth before anything is known, and how far that may be off."""

MIXED = 8.0
"""A kind whose decisions all agree says that its score does not matter: after so many the score counts half."""

UNANIMOUS = 12
"""What was dismissed so often and never approved is not raised by its score at all."""

MAX_OUTCOMES = 400
"""The newest scores, each made before its outcome, on which calibration is checked; at most so many."""

BINS = 10
RESAMPLED, BOUND = 1000, 0.95

_STEP, _FROM, _CELLS = 0.25, -5.0, 41
_AS_HIGH = 2


def squash(x: float) -> float:
    """The logistic function."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def logit(p: float) -> float:
    """Its inverse; `p` is kept within [0.001, 0.999]."""
    p = min(max(p, 0.001), 0.999)
    return math.log(p / (1 - p))


class Calibration:
    """Learns from (score, outcome), oldest first.

    `level` and `slope`: how far the line may be off, in log-odds and as a factor. A learner that knows its own level
    keeps it (`level` 0): what it was lately off by belongs to what it was lately asked, and says nothing of the rest.
    """

    def __init__(self, *, level: float, slope: float) -> None:
        self._line = [0.0, 1.0]
        self._spread = [level * level, 0.0, slope * slope]  # of offset, both, slope
        self._mass = [0.0] * _CELLS
        self._yes = [0.0] * _CELLS
        self.held: deque[tuple[float, bool]] = deque(maxlen=MAX_OUTCOMES)
        """(calibrated score as it was before the outcome was known, outcome), oldest first."""

    def apply(self, score: float) -> float:
        """The calibrated score, in (0, 1)."""
        return self._capped(self._linear(logit(score)))

    def learn(self, score: float, yes: bool, weight: float = 1.0) -> float:
        """Take in how a score came out, `weight` in (0, 1]; returns what it was calibrated to before."""
        x = logit(score)
        straight = self._linear(x)
        before = self._capped(straight)
        self.held.append((before, yes))
        cell = _cell(logit(straight))
        self._mass[cell] += weight
        self._yes[cell] += weight * yes
        self._update(x, yes, weight)
        return before

    def _linear(self, x: float) -> float:
        offset, slope = self._line
        unsure = self._spread[0] + 2 * x * self._spread[1] + x * x * self._spread[2]
        return squash((offset + slope * x) / math.sqrt(1 + math.pi * unsure / 8))

    def _capped(self, straight: float) -> float:
        value = straight
        if value > CREDIBLE_BELOW:
            low = max(0, _cell(logit(straight)) - _AS_HIGH)
            mass = sum(self._mass[low:])
            doubted = PRIOR_STRENGTH * PRIOR_FADES_FROM / max(mass, PRIOR_FADES_FROM)
            cap = (sum(self._yes[low:]) + PRIOR_SHARE * doubted) / (mass + doubted)
            value = min(value, max(cap, CREDIBLE_BELOW))
        return min(max(value, 0.001), 0.999)

    def _update(self, x: float, yes: bool, weight: float) -> None:
        a, b, c = self._spread
        offset_spread, slope_spread = a + b * x, b + c * x
        variance = offset_spread + slope_spread * x
        about = self._line[0] + self._line[1] * x
        step = 0.0
        for _ in range(20):
            expected = squash(about + variance * step)
            error = weight * (yes - expected) - step
            step += error / (1 + weight * expected * (1 - expected) * variance)
            if abs(error) < 1e-10:
                break
        expected = squash(about + variance * step)
        information = weight * expected * (1 - expected)
        shrinkage = information / (1 + information * variance)
        self._line = [self._line[0] + offset_spread * step, self._line[1] + slope_spread * step]
        self._spread = [
            a - shrinkage * offset_spread * offset_spread,
            b - shrinkage * offset_spread * slope_spread,
            c - shrinkage * slope_spread * slope_spread,
        ]


@dataclass(slots=True)
class _Kind:
    """What came of one kind: approved and dismissed, and the sum of their scores, all fading; and plain counts."""

    approved: float = 0.0
    dismissed: float = 0.0
    scores: float = 0.0
    decided: int = 0
    ever_approved: int = 0

    @property
    def weight(self) -> float:
        return self.approved + self.dismissed

    @property
    def unanimity(self) -> float:
        """How far the score counts within this kind, in (0, 1]: less where all its decisions agree."""
        return min(1.0, (MIXED + 2 * min(self.approved, self.dismissed)) / (MIXED + self.weight))


class KindCalibration:
    """Learns from (kind, score, outcome), oldest first; scores and results are in [0, 1].

    Within a kind a higher score never comes out lower. A kind that was always approved is not lowered by any score: its
    evidence may be fresh or old. A kind without decisions stays within `UNDECIDED_MOVE` of the base rate of new kinds.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._first = [0.0, 0.0]  # approved and decided, of the first decisions of each kind
        self._mean = [0.0, 0.0]  # scores and their weight, fading
        self._slope = [SLOPE, SLOPE_SPREAD**2]
        self.held: deque[tuple[float, bool]] = deque(maxlen=MAX_OUTCOMES)
        """(calibrated score as it was before the outcome was known, outcome), oldest first."""

    @property
    def base_rate(self) -> float:
        """The share approved of the first decisions on each kind, in (0, 1); a half while there are none."""
        approved, decided = self._first
        return (approved + 0.5 * BASE_STRENGTH) / (decided + BASE_STRENGTH)

    def apply(self, kind: str, score: float) -> float:
        """The calibrated score of a card of this kind, in (0, 1)."""
        record = self._kinds.get(kind, _Kind())
        rate, move = self._place(record, score)
        limit = UNDECIDED_MOVE + (1 - UNDECIDED_MOVE) * record.weight / (record.weight + MIXED)
        value = squash(logit(rate) + max(self._slope[0], 0.0) * move)
        return min(max(value, rate - limit, 0.001), rate + limit, 0.999)

    def learn(self, kind: str, score: float, yes: bool, weight: float = 1.0) -> float:
        """Take in how a score came out, `weight` in (0, 1]; returns what it was calibrated to before."""
        before = self.apply(kind, score)
        self.held.append((before, yes))
        record = self._kinds.setdefault(kind, _Kind())
        if record.decided:
            self._update(*self._place(record, score), yes, weight)
        if record.decided < FIRST:
            self._first = [self._first[0] + weight * yes, self._first[1] + weight]
        fade = math.exp(-weight / KIND_WINDOW)
        record.approved = record.approved * fade + weight * yes
        record.dismissed = record.dismissed * fade + weight * (not yes)
        record.scores = record.scores * fade + weight * score
        record.decided += 1
        record.ever_approved += yes
        fade = math.exp(-weight / OVERALL_WINDOW)
        self._mean = [self._mean[0] * fade + weight * score, self._mean[1] * fade + weight]
        return before

    def _place(self, kind_state: _Kind, score: float) -> tuple[float, float]:
        """The share that is expected of the kind, and how far the score lies from what is usual for it."""
        rate = (kind_state.approved + KIND_STRENGTH * self.base_rate) / (kind_state.weight + KIND_STRENGTH)
        usual = self._mean[0] / self._mean[1] if self._mean[1] else score
        away = score - (kind_state.scores + KIND_STRENGTH * usual) / (kind_state.weight + KIND_STRENGTH)
        if kind_state.decided and kind_state.ever_approved == kind_state.decided:
            away = max(away, 0.0)
        elif kind_state.decided >= UNANIMOUS and not kind_state.ever_approved:
            away = min(away, 0.0)
        return rate, away * kind_state.unanimity

    def _update(self, rate: float, move: float, yes: bool, weight: float) -> None:
        """Learn how much the score is worth: one step of a logistic regression with a single slope."""
        about, (first, unsure) = logit(rate), self._slope
        slope = first
        for _ in range(20):
            expected = squash(about + slope * move)
            step = (weight * (yes - expected) * move - (slope - first) / unsure) / (
                weight * expected * (1 - expected) * move * move + 1 / unsure
            )
            slope += step
            if abs(step) < 1e-9:
                break
        expected = squash(about + slope * move)
        self._slope = [slope, 1 / (weight * expected * (1 - expected) * move * move + 1 / unsure)]


def calibration_error(scores: Sequence[float], outcomes: Sequence[bool], bins: int = BINS) -> float:
    """Expected calibration error, in [0, 1]: over bins of equal width, how far what was said was off."""
    off = [0.0] * bins
    for score, yes in zip(scores, outcomes, strict=True):
        off[min(int(score * bins), bins - 1)] += yes - score
    return sum(map(abs, off)) / len(scores) if scores else 0.0


def calibration_bound(scores: Sequence[float], seed: int = 0) -> float:
    """What `calibration_error` stays below in 95 of 100 cases when such scores are perfectly calibrated."""
    import numpy

    chance = numpy.random.default_rng(seed)
    stated = numpy.asarray(scores, numpy.float64)
    into = numpy.zeros((len(stated), BINS))
    into[numpy.arange(len(stated)), numpy.minimum((stated * BINS).astype(int), BINS - 1)] = 1.0
    happened = (chance.random((RESAMPLED, len(stated))) < stated).astype(numpy.float64)
    errors = numpy.abs((happened - stated) @ into).sum(axis=1) / len(stated)
    return float(numpy.quantile(errors, BOUND))


def _cell(x: float) -> int:
    return min(max(round((x - _FROM) / _STEP), 0), _CELLS - 1)
