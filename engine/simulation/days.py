"""How a made-up day goes: when the laptop is open, when the operator is there, and what is odd about the day.

Plain values drawn from a seeded chance; `engine.simulation.month` lives them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

MOMENT = (8, 18)
"""So many minutes lie between two moments in which an operator who is there does something."""


class Odd(StrEnum):
    """What makes a day unlike the others."""

    GRUMPY = "grumpy"  # three rejections in a row: pause
    DESTRUCTIVE = "destructive prompts"  # content filter
    DEAR = "expensive runners"  # caps
    SPREE = "many expensive prompts"  # the day's and the month's cap
    KILL = "kill switch"  # F12, and an approval while it holds
    DND = "do not disturb"
    HASTY = "a cycle every 2 minutes"  # rate limiter
    CHATTY = "agents that trigger each other"  # loop detector, rate limiter
    LEADS = "work that leads to another channel"  # gate: a pair that is new
    DEPLOY = "work on production"  # gate
    OFF = "autonomous mode off"


LEARNING = 6
"""So many days of plain work come first: they earn what later days take away."""

SECOND = 0.3
"""How likely a day is odd in a second way."""


class Does(StrEnum):
    """What the operator does in a moment."""

    COMES = "comes"
    WORKS = "works"
    GOES = "goes"
    KILLS = "presses F12"
    RESUMES = "resumes"


@dataclass(frozen=True, slots=True)
class Day:
    """One day. `moments` in order; the laptop sleeps in `asleep`, spans in order that do not overlap."""

    number: int
    begin: datetime
    odd: frozenset[Odd] = frozenset()
    moments: tuple[tuple[datetime, Does], ...] = ()
    asleep: tuple[tuple[datetime, datetime], ...] = field(default=())


class Deck:
    """Deals what is odd about days: everything comes up before anything comes up again."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._left: list[Odd] = []

    def day(self, number: int, begin: datetime) -> Day:
        """Day `number` (from 0), which begins at local midnight `begin`."""
        cards = 0 if number < LEARNING else 1 + (self._chance.random() < SECOND)
        return make_day(number, begin, frozenset(self._deal() for _ in range(cards)), self._chance)

    def _deal(self) -> Odd:
        if not self._left:
            self._left = list(Odd)
            self._chance.shuffle(self._left)
        return self._left.pop()


def make_day(number: int, begin: datetime, odd: frozenset[Odd], chance: random.Random) -> Day:
    """One day: two stretches of work, on weekends one at most."""
    stretches = [(9, 40), (14, 40)] if begin.weekday() < 5 else [(13, 30)] if odd or begin.weekday() == 5 else []
    moments: list[tuple[datetime, Does]] = []
    for hour, minutes in stretches:
        at = begin + timedelta(hours=hour, minutes=chance.randint(0, 15))
        until = at + timedelta(minutes=minutes)
        moments.append((at, Does.COMES))
        while (at := at + timedelta(minutes=chance.randint(*MOMENT))) < until:
            moments.append((at, Does.WORKS))
        moments.append((until, Does.GOES))
    if Odd.KILL in odd:
        place = chance.randrange(1, len(moments))
        pressed = moments[place][0] + timedelta(minutes=1)
        back = pressed + timedelta(minutes=chance.randint(20, 90))
        moments += [(pressed, Does.KILLS), (back, Does.RESUMES)]
    return Day(number, begin, odd, tuple(sorted(moments)), _sleeps(begin, odd, chance))


def _sleeps(begin: datetime, odd: frozenset[Odd], chance: random.Random) -> tuple[tuple[datetime, datetime], ...]:
    """Most nights the lid is shut from the evening until the morning, and often over noon."""
    sleeps = []
    weekend = begin.weekday() >= 5
    if chance.random() < 0.9:
        sleeps.append((begin, begin + timedelta(hours=12 if weekend else 8, minutes=chance.randint(0, 50))))
    if not odd & {Odd.HASTY, Odd.CHATTY, Odd.LEADS} and chance.random() < 0.8:
        noon = begin + timedelta(hours=10, minutes=chance.randint(30, 50))
        sleeps.append((noon, noon + timedelta(minutes=chance.randint(90, 180))))
    if not odd & {Odd.CHATTY, Odd.LEADS} and chance.random() < 0.9:
        sleeps.append(
            (
                begin + timedelta(hours=15 if weekend else 16, minutes=chance.randint(0, 59)),
                begin + timedelta(hours=23, minutes=59),
            )
        )
    return tuple(sleeps)
