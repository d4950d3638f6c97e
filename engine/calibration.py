"""How far a score may be believed, learnt from past scores that were made before their outcome was known. Pure.

First a straight line in log-odds, for a learner that is too sure or too shy everywhere; then, at each height, the mean
error of the scores around it, for one that is so in places. Above `CARE` a score is capped by how often scores as high
came true, from a doubtful beginning: what nobody has seen come true a dozen times does not act by itself. One case
costs the same however many came before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

CARE = 0.75
"""Up to here a score needs no outcomes of its own to be believed."""

DOUBT, DOUBTED, DOZEN = 0.5, 8.0, 12.0
"""Of scores above `CARE` so many are expected to come true, as if that had been seen in so many cases: with 12 of 12
the cap is 0.8. From a dozen outcomes on the doubt has done its work and fades as they grow in number: it would go on
holding down what comes true nine times in ten."""

LOCAL = 8.0
"""So many cases around a height halve what is left of their mean error."""

HELD = 400
"""The newest scores, each made before its outcome, on which calibration is checked; at most so many."""

BINS = 10
RESAMPLED, BOUND = 1000, 0.95

_STEP, _FROM, _CELLS = 0.25, -5.0, 41
_WIDE = 0.6
_REACH = 7
_AS_HIGH = 2
_NEAR = [math.exp(-0.5 * (one * _STEP / _WIDE) ** 2) for one in range(_REACH + 1)]


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
    `places`: whether scores are also corrected by the mean error around them.
    """

    def __init__(self, *, level: float, slope: float, places: bool) -> None:
        self._line = [0.0, 1.0]
        self._spread = [level * level, 0.0, slope * slope]  # of offset, both, slope
        self._places = places
        self._mass = [0.0] * _CELLS
        self._error = [0.0] * _CELLS
        self._yes = [0.0] * _CELLS
        self.held: deque[tuple[float, bool]] = deque(maxlen=HELD)
        """(calibrated score as it was before the outcome was known, outcome), oldest first."""

    def apply(self, score: float) -> float:
        """The calibrated score, in (0, 1)."""
        return self._after(self._straight(logit(score)))

    def learn(self, score: float, yes: bool, weight: float = 1.0) -> float:
        """Take in how a score came out, `weight` in (0, 1]; returns what it was calibrated to before."""
        x = logit(score)
        straight = self._straight(x)
        before = self._after(straight)
        self.held.append((before, yes))
        cell = _cell(logit(straight))
        self._mass[cell] += weight
        self._error[cell] += weight * (yes - straight)
        self._yes[cell] += weight * yes
        self._bend(x, yes, weight)
        return before

    def state(self) -> dict[str, Any]:
        """All that was learnt, as JSON-able data."""
        return {
            "line": self._line, "spread": self._spread, "mass": self._mass, "error": self._error,
            "yes": self._yes, "held": [[score, yes] for score, yes in self.held],
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` described. Raises KeyError or TypeError for anything else."""
        self._line, self._spread = list(state["line"]), list(state["spread"])
        self._mass, self._error, self._yes = list(state["mass"]), list(state["error"]), list(state["yes"])
        self.held.extend((score, bool(yes)) for score, yes in state["held"])

    def _straight(self, x: float) -> float:
        offset, slope = self._line
        unsure = self._spread[0] + 2 * x * self._spread[1] + x * x * self._spread[2]
        return squash((offset + slope * x) / math.sqrt(1 + math.pi * unsure / 8))

    def _after(self, straight: float) -> float:
        middle = _cell(logit(straight))
        value = straight
        if self._places:
            around = [(_NEAR[abs(cell - middle)], cell) for cell in
                      range(max(0, middle - _REACH), min(_CELLS, middle + _REACH + 1))]  # fmt: skip
            mass = sum(near * self._mass[cell] for near, cell in around)
            value += sum(near * self._error[cell] for near, cell in around) / (mass + LOCAL)
        if value > CARE:
            low = max(0, middle - _AS_HIGH)
            mass = sum(self._mass[low:])
            doubted = DOUBTED * DOZEN / max(mass, DOZEN)
            cap = (sum(self._yes[low:]) + DOUBT * doubted) / (mass + doubted)
            value = min(value, max(cap, CARE))
        return min(max(value, 0.001), 0.999)

    def _bend(self, x: float, yes: bool, weight: float) -> None:
        a, b, c = self._spread
        up, along = a + b * x, b + c * x
        unsure = up + along * x
        about = self._line[0] + self._line[1] * x
        step = 0.0
        for _ in range(20):
            expected = squash(about + unsure * step)
            wrong = weight * (yes - expected) - step
            step += wrong / (1 + weight * expected * (1 - expected) * unsure)
            if abs(wrong) < 1e-10:
                break
        expected = squash(about + unsure * step)
        told = weight * expected * (1 - expected)
        fall = told / (1 + told * unsure)
        self._line = [self._line[0] + up * step, self._line[1] + along * step]
        self._spread = [a - fall * up * up, b - fall * up * along, c - fall * along * along]


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
