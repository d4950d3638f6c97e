"""Simulated sessions with and without an effect, for the benchmark of how often lift is wrong."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from engine.inference import Arms

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
