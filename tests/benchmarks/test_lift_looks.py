"""Lift looked at after every session: who is called harmful, and when (SPEC 5.7). What is acted on, beside other rules.

pytest tests/benchmarks/test_lift_looks.py -m benchmark -s

200 sessions, a fifth of them without the effect, a look after each; `WORLDS` of each kind. "Ever" is the share of
worlds in which it was called harmful at some look, "at" the session by which half of them had been.
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
from engine.statistics import Arms, difference_interval

pytestmark = pytest.mark.benchmark

WORLDS, SESSIONS, DRAWN = 200, 200, 0.2

ACTED_ON = "confidence sequence (acted on)"

Numbers = NDArray[Any]


@dataclass(frozen=True)
class Seen:
    """For every world and look: runs that went well and badly, with the effect and without."""

    with_good: Numbers
    with_bad: Numbers
    without_good: Numbers
    without_bad: Numbers

    @property
    def without(self) -> Numbers:
        return self.without_good + self.without_bad

    @property
    def told(self) -> Numbers:
        return self.with_good + self.with_bad

    def arms(self, world: int, look: int) -> Arms:
        at = (world, look)
        return Arms(*(int(counts[at]) for counts in (self.told, self.with_good, self.without, self.without_good)))


@dataclass(frozen=True)
class Kind:
    """A kind of world. `spells`: work is easy for 20 sessions and hard for the next, each as the dice fall. `counted`:
    the share of runs with the effect whose end counts; of the others all count."""

    name: str
    told: float
    untold: float
    spells: bool = False
    counted: float = 1.0

    def worlds(self) -> Seen:
        chance = numpy.random.default_rng(20)
        shape = (WORLDS, SESSIONS)
        without, counts = chance.random(shape) < DRAWN, chance.random(shape) < self.counted
        easier = numpy.repeat(chance.choice([-0.3, 0.25], (WORLDS, SESSIONS // 20)), 20, axis=1) if self.spells else 0.0
        good = chance.random(shape) < numpy.where(without, self.untold, self.told) + easier
        counts |= without
        groups = (good & ~without & counts, ~good & ~without & counts, good & without, ~good & without)
        return Seen(*(numpy.cumsum(group, axis=1) for group in groups))


NOTHING = (
    Kind("0 of .5", 0.5, 0.5),
    Kind("0 of .7", 0.7, 0.7),
    Kind("0 of .9", 0.9, 0.9),
    Kind("0 in spells", 0.65, 0.65, spells=True),
    Kind("0 lost runs", 0.7, 0.7, counted=0.5),
)
GOOD = (Kind("+.05", 0.75, 0.7), Kind("+.15", 0.75, 0.6), Kind("+.3", 0.8, 0.5))
HARM = (Kind("-.2", 0.5, 0.7), Kind("-.3", 0.45, 0.75), Kind("-.5", 0.25, 0.75))


def test_what_many_looks_do(capsys: pytest.CaptureFixture[str]) -> None:
    rules: Mapping[str, Callable[[Seen], Numbers]] = {
        "as if each look were the only one, 90 %": lambda seen: enough(seen) & (one_look(seen) > 0.9),
        ACTED_ON: lambda seen: each(seen, acted_on),
    }
    kinds = (*NOTHING, *GOOD, *HARM)
    with capsys.disabled():
        print(f"\n{WORLDS} worlds of each kind; ever called harmful, in % (and by which session half of them were)\n")
        print(f"{'rule':40}" + "".join(f"{kind.name:>13}" for kind in kinds))
    worlds = {kind: kind.worlds() for kind in kinds}
    found: dict[str, dict[Kind, float]] = {}
    for name, rule in rules.items():
        cells = []
        for kind, seen in worlds.items():
            called = rule(seen)
            ever = called.any(axis=1)
            found.setdefault(name, {})[kind] = float(ever.mean())
            middle = numpy.median(numpy.where(ever, called.argmax(axis=1) + 1, numpy.inf))
            at = f" ({middle:3.0f})" if kind in HARM and middle < numpy.inf else ""
            cells.append(f"{100 * ever.mean():5.1f}{at}")
        with capsys.disabled():
            print(f"{name:40}" + "".join(f"{cell:>13}" for cell in cells))
    acted = found[ACTED_ON]
    assert all(acted[kind] <= ERROR_RATE for kind in NOTHING), "what does nothing is left alone over its whole life"
    assert all(acted[kind] <= 0.02 for kind in GOOD[1:])
    assert acted[HARM[2]] >= 0.99
    assert acted[HARM[1]] >= 0.75


def enough(seen: Seen) -> Numbers:
    found: Numbers = (seen.told >= 10) & (seen.without >= 10)
    return found


def one_look(seen: Seen) -> Numbers:
    """How probable it is that the true share with is below the one without, from the even prior, as if this were the
    only look."""
    cells = (numpy.arange(200) + 0.5) / 200
    up, down = numpy.log(cells), numpy.log(1 - cells)

    def shares(good: Numbers, bad: Numbers) -> Numbers:
        logs = good[:, None] * up + bad[:, None] * down
        masses = numpy.exp(logs - logs.max(axis=1, keepdims=True))
        found: Numbers = masses / masses.sum(axis=1, keepdims=True)
        return found

    rows = []
    for world in range(WORLDS):
        told = shares(seen.with_good[world], seen.with_bad[world])
        untold = shares(seen.without_good[world], seen.without_bad[world])
        rows.append(((told.cumsum(axis=1) - told / 2) * untold).sum(axis=1))
    return numpy.array(rows)


def each(seen: Seen, rule: Callable[[Arms], bool]) -> Numbers:
    """Up to the first look at which it is called harmful: what comes after changes nothing."""
    called = numpy.zeros(seen.told.shape, bool)
    for world in range(WORLDS):
        for look in range(SESSIONS):
            if rule(seen.arms(world, look)):
                called[world, look] = True
                break
    return called


@cache
def acted_on(arms: Arms) -> bool:
    return difference_interval([arms], ERROR_RATE)[2] < 0
