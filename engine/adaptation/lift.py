"""What an effect does to how often runs go well, with and without it (SPEC 5.7). Pure.

Which runs go without is decided by a hash of the run and the overlay, so a run asks as often as it likes and always
gets the same answer, and nobody can choose.

It is looked at after every session, which gives chance many a try; an interval made for one look would call every
fourth effect that does nothing harmful in the end. So its ends are those of a confidence sequence: each is passed by
the true difference, at any time in an effect's life, in at most `DOUBT` of all cases. Measured over 200 sessions, a
fifth of them without, looked at after each (`tests/benchmarks/test_lift_looks.py`): of effects that do nothing 0 to 6
in a hundred are called harmful, of those that help by 15 points one; of those that cost 50 points all, half of them by
the 32nd session, of those that cost 30 points five in six, half of them by the 90th, of those that cost 20 points half.

How: a bet against each difference `d`. For every pair of shares that is worse than `d` (a grid, those that differ by
some 30 points the likeliest) the runs' likelihood is divided by that under the nearest pair that differs by `d`;
"nearest" weighs the arms by how often they are drawn, so that no true pair at `d` or better lets the quotient grow but
by chance (Turner, Ly and Grünwald, "Generic E-variables for exact sequential k-sample tests"). Their mean is a test
martingale, and `d` is given up when it passes 1 / `DOUBT`. That holds however the shares drift in time, as long as runs
that are counted fall into the arms as they were drawn. Because that can fail (an effect may also change how many runs
come to an end that counts), the same bet with the arms as they were seen must pass too; for any number of runs that one
is exact whatever the arms are.

SPEC fixes neither share nor certainty; `DOUBT` is what "shows harm" is read as.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.values.adaptation import Lift

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOUBT = 0.1
"""In so many of all cases an end of the interval is wrong at some time, at most."""

SAME = 0.1
"""An interval within this on both sides of 0 means that it makes no difference."""

_SHARES = 20
"""Shares of good runs that are bet on, in each arm."""

_LIKELY, _ABOUT = 0.3, 0.15
"""A difference that is bet on most, and how far around it: it finds harm of 20 to 30 points soonest, by simulation, and
loses nothing where it is greater. Whatever it is, what `DOUBT` says holds."""

_FINE = 0.001
"""So finely the ends of an interval are found."""

NOT_ENOUGH, HELPS, HARMS, NO_DIFFERENCE = "not enough evidence", "helps", "harms", "makes no difference"


@dataclass(frozen=True, slots=True)
class Arms:
    """Runs that had an effect and runs that went without, each with the same `propensity` (above 0 and below 1) to do
    so, and how many of each went well."""

    propensity: float
    with_runs: int = 0
    with_good: int = 0
    without_runs: int = 0
    without_good: int = 0

    def __post_init__(self) -> None:
        for good, runs in ((self.with_good, self.with_runs), (self.without_good, self.without_runs)):
            if not 0 <= good <= runs:
                raise ValueError(f"{good} of {runs} cannot be")
        if not 0 < self.propensity < 1:
            raise ValueError(f"{self.propensity} leaves nothing to chance")

    @property
    def swapped(self) -> Arms:
        """As if to go without were the effect."""
        return Arms(1 - self.propensity, self.without_runs, self.without_good, self.with_runs, self.with_good)


def withheld(run_id: str, overlay_id: str, share: float) -> bool:
    """Whether a run goes without an overlay; true of a `share`, 0 to 1, of all runs."""
    drawn = hashlib.blake2b(f"{run_id}\0{overlay_id}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn) < share * 2**64


def lift(overlay_id: str, strata: Sequence[Arms]) -> Lift:
    """What runs say; those that were drawn alike are a stratum. While the interval is too wide for any other verdict,
    it is "not enough evidence"."""
    difference, low, high = _reckoned(tuple(strata))
    return Lift(
        overlay_id,
        sum(one.with_runs for one in strata),
        sum(one.with_good for one in strata),
        sum(one.without_runs for one in strata),
        sum(one.without_good for one in strata),
        difference,
        low,
        high,
        verdict(low, high),
    )


def verdict(low: float, high: float) -> str:
    """What an interval says, in words."""
    if high < 0:
        return HARMS
    if low > 0:
        return HELPS
    return NO_DIFFERENCE if low >= -SAME and high <= SAME else NOT_ENOUGH


@lru_cache(maxsize=1_000)
def _reckoned(strata: tuple[Arms, ...]) -> tuple[float, float, float]:
    """Difference and interval. It takes milliseconds, and is asked again with every prompt."""
    low, high = -_upper_end([one.swapped for one in strata]), _upper_end(strata)
    return min(high, max(low, _difference(strata))), low, high


def _difference(strata: Sequence[Arms]) -> float:
    """The difference of the shares, as the mean of the strata where each weighs what it says; the even prior draws it
    a little to 0 while there are few runs."""
    total, weight = 0.0, 0.0
    for one in strata:
        told = (one.with_good + 1) / (one.with_runs + 2)
        untold = (one.without_good + 1) / (one.without_runs + 2)
        says = 1 / (1 / (one.with_runs + 2) + 1 / (one.without_runs + 2))
        total, weight = total + says * (told - untold), weight + says
    return total / weight if weight else 0.0


def _upper_end(strata: Sequence[Arms]) -> float:
    """The largest difference that is not given up."""
    kept, gone = -1.0, 1.0
    first = gone
    while gone - kept > _FINE:
        middle = (kept + gone) / 2
        if evidence(strata, middle) >= math.log(1 / DOUBT):
            gone = middle
        else:
            kept = middle
    return first if gone == first else kept


def evidence(strata: Sequence[Arms], bound: float) -> float:
    """How strongly runs speak against the difference's being `bound` (-1 to 1) or more: the natural logarithm of the
    bet, at most 0 on average while that is so."""
    both = [one for one in strata if one.with_runs and one.without_runs]
    drawn = _bet(both, [one.propensity for one in both], bound)
    seen = _bet(both, [one.without_runs / (one.with_runs + one.without_runs) for one in both], bound)
    return min(drawn, seen)


def _bet(strata: Sequence[Arms], shares: Sequence[float], bound: float) -> float:
    """The bet's logarithm, with the arms weighed by the `shares` of runs that go without."""
    if not strata:
        return 0.0
    import numpy  # not before it is needed

    told, untold = (pair[_worse(bound)] for pair in _pairs())
    if not told.size:
        return 0.0
    total = numpy.zeros(told.size)
    for one, share in zip(strata, shares, strict=True):
        nearest = _nearest(told, untold, share, bound)
        total += _likelier(told, nearest + bound, one.with_good, one.with_runs)
        total += _likelier(untold, nearest, one.without_good, one.without_runs)
    top = float(total.max())
    weights = _weights()[_worse(bound)]
    return top + math.log(float((weights * numpy.exp(total - top)).sum() / weights.sum()))


@lru_cache(maxsize=1)
def _pairs() -> tuple[NDArray[Any], NDArray[Any]]:
    """The shares with and without that are bet on."""
    import numpy

    shares = (numpy.arange(_SHARES) + 0.5) / _SHARES
    return numpy.repeat(shares, _SHARES), numpy.tile(shares, _SHARES)


@lru_cache(maxsize=1)
def _weights() -> NDArray[Any]:
    """How likely each of the pairs is held to be."""
    import numpy

    told, untold = _pairs()
    found: NDArray[Any] = numpy.exp(-(((abs(told - untold) - _LIKELY) / _ABOUT) ** 2) / 2)
    return found


@lru_cache(maxsize=4_096)
def _worse(bound: float) -> NDArray[Any]:
    """Which of the pairs differ by less than `bound`."""
    told, untold = _pairs()
    found: NDArray[Any] = told - untold < bound - 1e-9
    return found


def _likelier(share: NDArray[Any], other: NDArray[Any], good: int, runs: int) -> NDArray[Any]:
    """The logarithm of how many times likelier `good` of `runs` are with `share` than with the `other` one."""
    import numpy

    found: NDArray[Any] = good * numpy.log(share / other) + (runs - good) * numpy.log((1 - share) / (1 - other))
    return found


def _nearest(told: NDArray[Any], untold: NDArray[Any], share: float, bound: float) -> NDArray[Any]:
    """The share without, of the pair that differs by `bound` and is nearest to `told` and `untold`: the least relative
    entropy, with arms drawn by `share`. A root of a cubic equation (Miettinen and Nurminen, 1985)."""
    import numpy

    good = share * untold + (1 - share) * told
    square = (1 + share) * bound - 1 - good
    linear = (share * bound - 1 - 2 * share * untold) * bound + good
    constant = share * untold * bound * (1 - bound)
    turn = square**3 / 27 - square * linear / 6 + constant / 2
    size = numpy.copysign(numpy.sqrt(numpy.maximum(square**2 / 9 - linear / 3, 1e-30)), turn)
    angle = (math.pi + numpy.arccos(numpy.clip(turn / size**3, -1, 1))) / 3
    root = 2 * size * numpy.cos(angle) - square / 3
    found: NDArray[Any] = numpy.clip(root, max(0.0, -bound) + 1e-12, min(1.0, 1 - bound) - 1e-12)
    return found
