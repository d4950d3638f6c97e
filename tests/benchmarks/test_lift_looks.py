"""How often an effect is called harmful if its lift is checked after every session (SPEC 5.7): by the product's rule,
and by a rule that is made for a single check.

pytest tests/benchmarks/test_lift_looks.py -m benchmark -s

There are `WORLDS` worlds of each kind. Each has 200 sessions, a fifth of them without the effect, and a check after
each. "Ever" is the share of worlds in which the effect was called harmful at some check, "at" the session by which this
had happened in half of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from engine.learning.candidates.overlays import ERROR_RATE
from engine.statistics import Arms, compute_difference_interval

WORLDS, SESSIONS, WITHHELD = 200, 200, 0.2
"""Worlds of each kind, sessions of each world, and the share of sessions without the effect."""

PRODUCT_RULE = "confidence sequence (acted on)"

Numbers = NDArray[Any]


@dataclass(frozen=True)
class RunCounts:
    """For every world and check the number of runs that went well and badly, with the effect and without."""

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
    """A kind of world, with the shares of runs that go well with the effect and without it. With `spells`, work is easy
    or hard, at random, for 20 sessions each. `counted` is the share of runs with the effect that count; all others
    do."""

    name: str
    with_effect: float
    without_effect: float
    spells: bool = False
    counted: float = 1.0

    def simulate(self) -> RunCounts:
        """The counts of `WORLDS` worlds of this kind."""
        chance = numpy.random.default_rng(20)
        shape = (WORLDS, SESSIONS)
        without, is_counted = chance.random(shape) < WITHHELD, chance.random(shape) < self.counted
        easier = numpy.repeat(chance.choice([-0.3, 0.25], (WORLDS, SESSIONS // 20)), 20, axis=1) if self.spells else 0.0
        good = chance.random(shape) < numpy.where(without, self.without_effect, self.with_effect) + easier
        is_counted |= without
        groups = (good & ~without & is_counted, ~good & ~without & is_counted, good & without, ~good & without)
        return RunCounts(*(numpy.cumsum(group, axis=1) for group in groups))


NOTHING = (
    WorldKind("0 of .5", 0.5, 0.5),
    WorldKind("0 of .7", 0.7, 0.7),
    WorldKind("0 of .9", 0.9, 0.9),
    WorldKind("0 in spells", 0.65, 0.65, spells=True),
    WorldKind("0 lost runs", 0.7, 0.7, counted=0.5),
)
GOOD = (WorldKind("+.05", 0.75, 0.7), WorldKind("+.15", 0.75, 0.6), WorldKind("+.3", 0.8, 0.5))
HARM = (WorldKind("-.2", 0.5, 0.7), WorldKind("-.3", 0.45, 0.75), WorldKind("-.5", 0.25, 0.75))


def test_false_alarms_and_harm_found_over_many_looks(capsys: pytest.CaptureFixture[str]) -> None:
    rules: Mapping[str, Callable[[RunCounts], Numbers]] = {
        "as if each look were the only one, 90 %": looks_harmful,
        PRODUCT_RULE: lambda counts: find_first_looks(counts, is_harmful),
    }
    kinds = (*NOTHING, *GOOD, *HARM)
    with capsys.disabled():
        print(f"\n{WORLDS} worlds of each kind; ever called harmful, in % (and by which session half of them were)\n")
        print(f"{'rule':40}" + "".join(f"{kind.name:>13}" for kind in kinds))
    worlds = {kind: kind.simulate() for kind in kinds}
    shares: dict[str, dict[WorldKind, float]] = {}
    for name, rule in rules.items():
        cells = []
        for kind, counts in worlds.items():
            is_called = rule(counts)
            is_ever_called = is_called.any(axis=1)
            shares.setdefault(name, {})[kind] = float(is_ever_called.mean())
            median_session = numpy.median(numpy.where(is_ever_called, is_called.argmax(axis=1) + 1, numpy.inf))
            at = f" ({median_session:3.0f})" if kind in HARM and median_session < numpy.inf else ""
            cells.append(f"{100 * is_ever_called.mean():5.1f}{at}")
        with capsys.disabled():
            print(f"{name:40}" + "".join(f"{cell:>13}" for cell in cells))
    product_shares = shares[PRODUCT_RULE]
    assert all(product_shares[kind] <= ERROR_RATE for kind in NOTHING), "an effect that does nothing"
    assert all(product_shares[kind] <= 0.02 for kind in GOOD[1:])
    assert product_shares[HARM[2]] >= 0.99
    assert product_shares[HARM[1]] >= 0.75


def looks_harmful(counts: RunCounts) -> Numbers:
    """Whether the shares of good runs differ at 90 % (one-sided z-test), as if this were the only check. It needs 10
    runs of each kind."""
    runs, without = numpy.maximum(counts.with_effect, 1), numpy.maximum(counts.without, 1)
    pooled = (counts.with_good + counts.without_good) / (runs + without)
    error = numpy.sqrt(pooled * (1 - pooled) * (1 / runs + 1 / without))
    found: Numbers = counts.without_good / without - counts.with_good / runs > 1.2816 * error
    return found & (counts.with_effect >= 10) & (counts.without >= 10)


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
    return compute_difference_interval([arms], ERROR_RATE)[2] < 0
