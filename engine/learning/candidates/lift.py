"""What an effect does to how often runs go well, with and without it (SPEC 5.7). Pure.

Which runs go without is decided by a hash of the run and the overlay, so a run asks as often as it likes and always
gets the same answer, and nobody can choose.

It is looked at after every session, so the ends of its interval hold at every look (`confidence_sequence`). Measured
over 200 sessions, a fifth of them without, looked at after each (`tests/benchmarks/test_lift_looks.py`): of effects
that do nothing 0 to 6 in a hundred are called harmful, of those that help by 15 points one; of those that cost 50
points all, half of them by the 32nd session, of those that cost 30 points five in six, half of them by the 90th, of
those that cost 20 points half.

SPEC fixes neither share nor certainty; `DOUBT` is what "shows harm" is read as.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from engine.model.adaptation import Lift
from engine.model.confidence_sequence import Arms, upper_end

DOUBT = 0.1
"""In so many of all cases an end of the interval is wrong at some time, at most."""

SAME = 0.1
"""An interval within this on both sides of 0 means that it makes no difference."""

NOT_ENOUGH, HELPS, HARMS, NO_DIFFERENCE = "not enough evidence", "helps", "harms", "makes no difference"


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
    low, high = -upper_end([one.swapped for one in strata], DOUBT), upper_end(strata, DOUBT)
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
