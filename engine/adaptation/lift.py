"""What an effect does to how often runs go well, with and without it (SPEC 5.7). Pure.

Which runs go without is decided by a hash of the run and the overlay, so a run asks as often as it likes and always
gets the same answer, and nobody can choose. What good runs were in each arm says how probable each true share is
(Beta, from the even prior); the difference of the two says what the effect does.

It is looked at after every session, which gives chance many a try. Over 300 sessions with a fifth of them without: of
effects that do nothing a third is called harmful at some time, of those that help by 10 to 15 points 3 to 6 in a
hundred, of those that cost 25 points all, half of them by the 57th session. So the operator is asked, and what was
taken back can be put in force again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from engine.values.adaptation import Lift

LEAST = 10
"""So many runs with, and as many without, before anything is said."""

HARM = 0.9
"""From above this probability of harm on an effect harms; the same of help, and it helps."""

SURE = 0.95
"""The interval holds the true difference with this probability."""

SAME = 0.1
"""An interval within this on both sides of 0 means that it makes no difference."""

_CELLS = 240
_WIDTH = 6.0

NOT_ENOUGH, HELPS, HARMS, NO_DIFFERENCE = "not enough evidence", "helps", "harms", "makes no difference"


@dataclass(frozen=True, slots=True)
class Arms:
    """Runs that had an effect and runs that went without, and how many of each went well."""

    with_runs: int = 0
    with_good: int = 0
    without_runs: int = 0
    without_good: int = 0


def withheld(run_id: str, overlay_id: str, share: float) -> bool:
    """Whether a run goes without an overlay; true of a `share`, 0 to 1, of all runs."""
    drawn = hashlib.blake2b(f"{run_id}\0{overlay_id}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn) < share * 2**64


def lift(overlay_id: str, arms: Arms) -> Lift:
    """What `arms` say. Below `LEAST` runs in either arm, or while the interval is too wide for any other verdict, it is
    "not enough evidence". Raises ValueError for counts that cannot be."""
    difference, low, high, harm = _reckoned(arms)
    return Lift(
        overlay_id,
        arms.with_runs,
        arms.with_good,
        arms.without_runs,
        arms.without_good,
        difference,
        low,
        high,
        harm,
        verdict(arms, low, high, harm),
    )


@lru_cache(maxsize=1_000)
def _reckoned(arms: Arms) -> tuple[float, float, float, float]:
    """Difference, interval, probability of harm. It takes milliseconds, and is asked again with every prompt."""
    for good, runs in ((arms.with_good, arms.with_runs), (arms.without_good, arms.without_runs)):
        if not 0 <= good <= runs:
            raise ValueError(f"{good} of {runs} cannot be")
    told, untold = _Share(arms.with_good, arms.with_runs), _Share(arms.without_good, arms.without_runs)
    return (told.mean - untold.mean, *_interval(told, untold), harm_of(arms))


def harm_of(arms: Arms) -> float:
    """How probable it is that runs with the effect go well less often than those without."""
    return _worse(_Share(arms.with_good, arms.with_runs), _Share(arms.without_good, arms.without_runs))


def verdict(arms: Arms, low: float, high: float, harm: float) -> str:
    """In words. "makes no difference" is said only of what was measured finely enough to see one."""
    if min(arms.with_runs, arms.without_runs) < LEAST:
        return NOT_ENOUGH
    if harm > HARM:
        return HARMS
    if 1 - harm > HARM:
        return HELPS
    return NO_DIFFERENCE if low >= -SAME and high <= SAME else NOT_ENOUGH


@dataclass(frozen=True, slots=True)
class _Share:
    """A true share after `good` of `runs`: Beta(1 + good, 1 + runs - good)."""

    good: int
    runs: int

    @property
    def a(self) -> int:
        return 1 + self.good

    @property
    def b(self) -> int:
        return 1 + self.runs - self.good

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    @property
    def spread(self) -> float:
        return math.sqrt(self.mean * (1 - self.mean) / (self.a + self.b + 1))

    def density(self, x: float) -> float:
        """Not normalised, 1 near the most probable value."""
        top = self.good / self.runs if self.runs else 0.5
        return math.exp(_log(self.good, x) + _log(self.runs - self.good, 1 - x) - self._peak(top))

    def _peak(self, top: float) -> float:
        return _log(self.good, top) + _log(self.runs - self.good, 1 - top)


def _log(times: int, x: float) -> float:
    return times * math.log(x) if times else 0.0


def _worse(told: _Share, untold: _Share) -> float:
    """How probable it is that the true share with is below the one without; exact for whole counts."""
    total = 0.0
    for i in range(untold.a):  # P(untold > told), see the sum of Beta functions for independent shares
        total += math.exp(
            _log_beta(told.a + i, told.b + untold.b)
            - math.log(untold.b + i)
            - _log_beta(1 + i, untold.b)
            - _log_beta(told.a, told.b)
        )
    return min(1.0, max(0.0, total))


def _log_beta(a: int, b: int) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _interval(told: _Share, untold: _Share) -> tuple[float, float]:
    """Between which the difference of the true shares lies, with equal doubt at both ends."""
    spans = [
        (max(0.0, one.mean - _WIDTH * one.spread), min(1.0, one.mean + _WIDTH * one.spread)) for one in (told, untold)
    ]
    step = max(high - low for low, high in spans) / _CELLS
    one, other = (_cells(share, span, step) for share, span in zip((told, untold), spans, strict=True))
    masses = [0.0] * (len(one) + len(other) - 1)
    for i, mass in enumerate(one):
        for j, less in enumerate(other):
            masses[i - j + len(other) - 1] += mass * less
    lowest = spans[0][0] - spans[1][0] - (len(other) - 1) * step
    return _quantile(masses, lowest, step, (1 - SURE) / 2), _quantile(masses, lowest, step, (1 + SURE) / 2)


def _cells(share: _Share, span: tuple[float, float], step: float) -> Sequence[float]:
    """Probabilities of steps of a share, the first one around `span[0] + step / 2`."""
    low, high = span
    places = [low + step * (i + 0.5) for i in range(max(1, math.ceil((high - low) / step - 1e-9)))]
    masses = [share.density(x) if 0 < x < 1 else 0.0 for x in places]
    total = sum(masses)
    return [mass / total for mass in masses]


def _quantile(masses: Sequence[float], lowest: float, step: float, wanted: float) -> float:
    """Where so much lies below; the mass of a step is spread over it."""
    below = 0.0
    for place, mass in enumerate(masses):
        if below + mass >= wanted:
            within = (wanted - below) / mass if mass else 0.0
            return max(-1.0, min(1.0, lowest + (place - 0.5 + within) * step))
        below += mass
    return max(-1.0, min(1.0, lowest + len(masses) * step))
