"""How often an effect is called harmful if its lift is checked after every session (SPEC 5.7): by the product's rule,
and by a rule that is made for a single check.

pytest tests/benchmarks/test_lift_looks.py -m benchmark -s

There are `WORLDS` worlds of each kind. Each has 200 sessions, a fifth of them without the effect, and a check after
each. "Ever" is the share of worlds in which the effect was called harmful at some check, "at" the session by which this
had happened in half of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
from numpy.typing import NDArray

from engine.inference import Arms, compute_difference_interval
from engine.learning.candidates.overlays import ERROR_RATE

WORLDS = 200
"""Worlds of each kind."""

SESSIONS = 200
"""Sessions of each world."""

WITHHELD = 0.2
"""The share of sessions without the effect."""

SPELL = 20
"""Sessions of a spell of easy or hard work."""

HARD, EASY = -0.3, 0.25
"""What a spell adds to the share of runs that go well."""

SEED = 20
"""The seed of the benchmark's published figures."""

Numbers = NDArray[Any]


@dataclass(frozen=True)
class RunCounts:
    """For every world and look the number of runs that went well and badly, with the effect and without."""

    with_good: Numbers
    with_bad: Numbers
    without_good: Numbers
    without_bad: Numbers

    @property
    def without(self) -> Numbers:
        return self.without_good + self.without_bad

    @property
    def with_effect(self) -> Numbers:
        return self.with_good + self.with_bad

    def make_arms(self, world: int, look: int) -> Arms:
        index = (world, look)
        return Arms(*(int(runs[index]) for runs in (self.with_effect, self.with_good, self.without, self.without_good)))


@dataclass(frozen=True)
class WorldKind:
    """A kind of world, with the shares of runs that go well with the effect and without it. With `has_spells`, work is
    easy or hard, at random, for `SPELL` sessions each. `counted` is the share of runs with the effect that count; all
    others do."""

    name: str
    with_effect: float
    without_effect: float
    has_spells: bool = False
    counted: float = 1.0

    def simulate(self) -> RunCounts:
        """The counts of `WORLDS` worlds of this kind."""
        chance = numpy.random.default_rng(SEED)
        shape = (WORLDS, SESSIONS)
        without, is_counted = chance.random(shape) < WITHHELD, chance.random(shape) < self.counted
        share_of_good = numpy.where(without, self.without_effect, self.with_effect)
        if self.has_spells:
            spells = chance.choice([HARD, EASY], (WORLDS, SESSIONS // SPELL))
            share_of_good = share_of_good + numpy.repeat(spells, SPELL, axis=1)
        good = chance.random(shape) < share_of_good
        is_counted |= without
        groups = (good & ~without & is_counted, ~good & ~without & is_counted, good & without, ~good & without)
        return RunCounts(*(numpy.cumsum(group, axis=1) for group in groups))


NOTHING = (
    WorldKind("0 of .5", 0.5, 0.5),
    WorldKind("0 of .7", 0.7, 0.7),
    WorldKind("0 of .9", 0.9, 0.9),
    WorldKind("0 in spells", 0.65, 0.65, has_spells=True),
    WorldKind("0 lost runs", 0.7, 0.7, counted=0.5),
)
"""An effect that does nothing."""

CLEARLY_GOOD = (WorldKind("+.15", 0.75, 0.6), WorldKind("+.3", 0.8, 0.5))
GOOD = (WorldKind("+.05", 0.75, 0.7), *CLEARLY_GOOD)
"""An effect that helps. The smallest is so near to nothing that it is printed alone."""

GREAT_HARM, MUCH_HARM, LITTLE_HARM = (
    WorldKind("-.5", 0.25, 0.75), WorldKind("-.3", 0.45, 0.75), WorldKind("-.2", 0.5, 0.7),
)  # fmt: skip
HARM = (LITTLE_HARM, MUCH_HARM, GREAT_HARM)


def looks_harmful(counts: RunCounts) -> Numbers:
    """Whether the shares of good runs differ at 90 % (one-sided z-test), as if this were the only check. It needs 10
    runs of each kind."""
    runs, without = numpy.maximum(counts.with_effect, 1), numpy.maximum(counts.without, 1)
    pooled = (counts.with_good + counts.without_good) / (runs + without)
    error = numpy.sqrt(pooled * (1 - pooled) * (1 / runs + 1 / without))
    is_worse = counts.without_good / without - counts.with_good / runs > 1.2816 * error
    return is_worse & (counts.with_effect >= 10) & (counts.without >= 10)


def find_first_looks(counts: RunCounts, rule: Callable[[Arms], bool]) -> Numbers:
    """For each world True at the first check at which the effect is called harmful, after which there are no more."""
    called = numpy.zeros(counts.with_effect.shape, bool)
    for world in range(WORLDS):
        for look in range(SESSIONS):
            if rule(counts.make_arms(world, look)):
                called[world, look] = True
                break
    return called


@cache
def is_harmful(arms: Arms) -> bool:
    return compute_difference_interval([arms], ERROR_RATE).high < 0


def compute_share_called(is_called: Numbers) -> float:
    """The share of worlds in which the effect is ever called harmful."""
    return float(is_called.any(axis=1).mean())


def format_cell(kind: WorldKind, is_called: Numbers) -> str:
    """The share in per cent; where there is harm, also the session by which half of the worlds were called harmful."""
    sessions = numpy.where(is_called.any(axis=1), is_called.argmax(axis=1) + 1, numpy.inf)
    median_session = numpy.median(sessions)
    at = f" ({median_session:3.0f})" if kind in HARM and median_session < numpy.inf else ""
    return f"{100 * compute_share_called(is_called):5.1f}{at}"


def test_harm_is_found_over_many_looks_with_few_false_alarms():
    kinds = (*NOTHING, *GOOD, *HARM)
    print(f"\n{WORLDS} worlds of each kind; ever called harmful, in % (and by which session half of them were)\n")
    print(f"{'rule':40}" + "".join(f"{kind.name:>13}" for kind in kinds))
    worlds = {kind: kind.simulate() for kind in kinds}
    by_single_check = {kind: looks_harmful(counts) for kind, counts in worlds.items()}
    by_product = {kind: find_first_looks(counts, is_harmful) for kind, counts in worlds.items()}
    for name, is_called in (
        ("as if each look were the only one, 90 %", by_single_check),
        ("confidence sequence (acted on)", by_product),
    ):
        print(f"{name:40}" + "".join(f"{format_cell(kind, called):>13}" for kind, called in is_called.items()))
    shares = {kind: compute_share_called(called) for kind, called in by_product.items()}
    assert all(shares[kind] <= ERROR_RATE for kind in NOTHING), "an effect that does nothing"
    assert all(shares[kind] <= 0.02 for kind in CLEARLY_GOOD)
    assert shares[GREAT_HARM] >= 0.99
    assert shares[MUCH_HARM] >= 0.75
