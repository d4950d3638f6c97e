"""A confidence sequence for the difference that something makes to the share of good sessions (SPEC 5.1, 5.7). Pure.

The figures are read after every session. An ordinary interval, made for one look, would sooner or later call every
fourth ineffective change harmful. The ends of a confidence sequence are wrong at any time in at most a share `doubt`
of cases.

Method: a test martingale against each difference `d`. For each pair of shares that is worse than `d` (a grid;
differences around 30 points weigh most) the likelihood of the sessions is divided by that under a pair that differs by
`d`. `d` is rejected when the weighted mean passes 1 / `doubt`.

Where sessions were randomised, the divisor is the nearest pair, weighted by how often each arm is drawn (Turner, Ly
and Grünwald, "Generic E-variables for exact sequential k-sample tests"). This is robust to drift, provided that
counted sessions fall into the arms as drawn. Since that can fail, the same test with the observed arms must pass as
well.

Where nothing was randomised, the divisor is the best pair at `d` or better (Wasserman, Ramdas and Balakrishnan,
"Universal inference"). This holds for any assignment, but drift is not told apart from an effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHARES = 20
"""Shares of good runs that are bet on, in each arm."""

_LIKELY, _ABOUT = 0.3, 0.15
"""A difference that is bet on most, and how far around it: it finds harm of 20 to 30 points soonest, by simulation, and
loses nothing where it is greater. Whatever it is, what a `doubt` says holds."""

_FINE = 0.001
"""So finely the ends of an interval are found."""


@frozen
class Arms:
    """Runs that had something and runs that went without, each with the same `propensity` (above 0 and below 1) to do
    so, None where nobody drew, and how many of each went well."""

    propensity: float | None
    with_runs: int = 0
    with_good: int = 0
    without_runs: int = 0
    without_good: int = 0

    def __post_init__(self) -> None:
        for good, runs in ((self.with_good, self.with_runs), (self.without_good, self.without_runs)):
            if not 0 <= good <= runs:
                raise ValueError(f"{good} of {runs} cannot be")
        if self.propensity is not None and not 0 < self.propensity < 1:
            raise ValueError(f"{self.propensity} leaves nothing to chance")

    @property
    def went_without(self) -> float:
        """The share of runs that did; there are some."""
        return self.without_runs / (self.with_runs + self.without_runs)

    @property
    def swapped(self) -> Arms:
        """As if to go without were the effect."""
        drawn = None if self.propensity is None else 1 - self.propensity
        return Arms(drawn, self.without_runs, self.without_good, self.with_runs, self.with_good)


def upper_end(strata: Sequence[Arms], doubt: float) -> float:
    """The largest difference, good runs with less those without, that is not given up: the true one is above it, at any
    time, in at most a `doubt` of all cases."""
    accepted, rejected = -1.0, 1.0
    first = rejected
    while rejected - accepted > _FINE:
        middle = (accepted + rejected) / 2
        if evidence(strata, middle) >= math.log(1 / doubt):
            rejected = middle
        else:
            accepted = middle
    return first if rejected == first else accepted


def evidence(strata: Sequence[Arms], bound: float) -> float:
    """How strongly runs speak against the difference's being `bound` (-1 to 1) or more: the natural logarithm of the
    bet, at most 0 on average while that is so."""
    both = [arms for arms in strata if arms.with_runs and arms.without_runs]
    drawn = _bet(both, [arms.propensity for arms in both], bound)
    observed = _bet(both, [None if arms.propensity is None else arms.went_without for arms in both], bound)
    return min(drawn, observed)


def _bet(strata: Sequence[Arms], shares: Sequence[float | None], bound: float) -> float:
    """The bet's logarithm, with the arms weighed by the `shares` of runs that go without, None where nobody drew."""
    if not strata:
        return 0.0
    import numpy  # not before it is needed

    with_shares, without_shares = (pair[_worse(bound)] for pair in _pairs())
    if not with_shares.size:
        return 0.0
    total = numpy.zeros(with_shares.size)
    for arms, share in zip(strata, shares, strict=True):
        if share is None:
            null_with, null_without = _likeliest(arms, bound)
        else:
            null_without = _nearest(with_shares, without_shares, share, bound)
            null_with = null_without + bound
        total += _likelier(with_shares, null_with, arms.with_good, arms.with_runs)
        total += _likelier(without_shares, null_without, arms.without_good, arms.without_runs)
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

    with_shares, without_shares = _pairs()
    weights: NDArray[Any] = numpy.exp(-(((abs(with_shares - without_shares) - _LIKELY) / _ABOUT) ** 2) / 2)
    return weights


@lru_cache(maxsize=4_096)
def _worse(bound: float) -> NDArray[Any]:
    """Which of the pairs differ by less than `bound`."""
    with_shares, without_shares = _pairs()
    worse: NDArray[Any] = with_shares - without_shares < bound - 1e-9
    return worse


def _likelier(share: NDArray[Any], other: NDArray[Any], good: int, runs: int) -> NDArray[Any]:
    """The logarithm of how many times likelier `good` of `runs` are with `share` than with the `other` one."""
    import numpy

    ratio: NDArray[Any] = good * numpy.log(share / other) + (runs - good) * numpy.log((1 - share) / (1 - other))
    return ratio


def _likeliest(arms: Arms, bound: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of all pairs that differ by `bound` or more, the one under which what was seen is likeliest."""
    import numpy

    with_share, without_share = (
        numpy.array([arms.with_good / arms.with_runs]),
        numpy.array([arms.without_good / arms.without_runs]),
    )
    if with_share[0] - without_share[0] >= bound:
        return numpy.clip(with_share, 1e-12, 1 - 1e-12), numpy.clip(without_share, 1e-12, 1 - 1e-12)
    nearest = _nearest(with_share, without_share, arms.went_without, bound)
    return nearest + bound, nearest


def _nearest(with_share: NDArray[Any], without_share: NDArray[Any], share: float, bound: float) -> NDArray[Any]:
    """The share without, of the pair that differs by `bound` and is nearest to the given pair: the least relative
    entropy, with arms drawn by `share`. A root of a cubic equation (Miettinen and Nurminen, 1985)."""
    import numpy

    good = share * without_share + (1 - share) * with_share
    square = (1 + share) * bound - 1 - good
    linear = (share * bound - 1 - 2 * share * without_share) * bound + good
    constant = share * without_share * bound * (1 - bound)
    turn = square**3 / 27 - square * linear / 6 + constant / 2
    size = numpy.copysign(numpy.sqrt(numpy.maximum(square**2 / 9 - linear / 3, 1e-30)), turn)
    angle = (math.pi + numpy.arccos(numpy.clip(turn / size**3, -1, 1))) / 3
    root = 2 * size * numpy.cos(angle) - square / 3
    nearest: NDArray[Any] = numpy.clip(root, max(0.0, -bound) + 1e-12, min(1.0, 1 - bound) - 1e-12)
    return nearest
