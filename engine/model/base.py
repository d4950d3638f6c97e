"""What all modules of values use: money, ids, randomness, parts of the day, layers, trust labels, and `Refusal`.

A service raises `Refusal` for what it does not do, with a stable code, the reason and how to fix it. Verbs, screens and
the gateway show it as it is.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from engine.frozen import frozen

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MICRO = 1_000_000
"""Micro-dollars of a dollar."""

APPROVED = "approved by you"
"""The label of a quoted text that the operator approved."""

_NAME = re.compile(r"(?!.*//)[\w./:@+,=\[\]-]{1,200}")


def microusd(dollars: float) -> int:
    """Dollars as whole micro-dollars, rounded half to even."""
    return round(dollars * MICRO)


def dollars(amount: float) -> float:
    """Micro-dollars as dollars with six decimals, for JSON."""
    return round(amount / MICRO, 6)


class Randomness:
    """The source of ids and random numbers. With a seed, it gives the same sequence again (ARCHITECTURE rule 7).

    Each kind of id has its own sequence, and so have the random numbers. So threads that draw from one sequence do not
    change another.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        self._random: random.Random = random.Random(seed) if seed is not None else random.SystemRandom()
        self._ids: dict[str, random.Random] = {}
        self._lock = threading.Lock()

    def new_id(self, prefix: str) -> str:
        """A fresh id such as `pred_7k2m9x4qd1ab`: 12 characters of 36 after the prefix."""
        with self._lock:
            ids = self._ids.get(prefix)
            if ids is None:
                ids = self._random if self._seed is None else random.Random(f"{self._seed}/{prefix}")
                self._ids[prefix] = ids
            return f"{prefix}_" + "".join(ids.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=12))

    def pick(self, weights: Mapping[str, float]) -> str:
        """A key, drawn with a probability proportional to its weight. The sum of the weights must be above 0."""
        with self._lock:
            return self._random.choices(list(weights), weights=list(weights.values()))[0]

    def uniform(self) -> float:
        """A number in [0, 1)."""
        with self._lock:
            return self._random.random()


def group_pairs(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of (key, value) pairs by key, in the order of the pairs."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


class Refusal(Exception):
    """Raised if a request is not carried out, with what the operator needs to fix that (SPEC 9.8, 11.2).

    `code` is a stable word for programs, `message` says what is wrong and where, and `fix` says how to fix it. `rail`
    is the rail of safety that does not allow it (SPEC 3), "" for another reason. It is not sent to programs.
    """

    def __init__(self, code: str, message: str, fix: str = "", *, rail: str = "") -> None:
        super().__init__(message if not fix else f"{message} ({fix})")
        self.code = code
        self.message = message
        self.fix = fix
        self.rail = rail

    def document(self) -> dict[str, Any]:
        """The refusal as JSON, as it is printed and sent."""
        return {"error": {"code": self.code, "message": self.message, "fix": self.fix}}


def find_or_none(get: Callable[[str], _Value], id: str) -> _Value | None:
    """The value that `get` has for an id; None if it refuses the id as unknown (`unknown_card` and the like)."""
    try:
        return get(id)
    except Refusal as refusal:
        if not refusal.code.startswith("unknown_"):
            raise
        return None


class PartOfDay(StrEnum):
    """The parts of the day: morning review, afternoon deep work, evening summary (SPEC 2.1), and night."""

    MORNING = "morning"  # 05:00-11:59
    AFTERNOON = "afternoon"  # 12:00-17:59
    EVENING = "evening"  # 18:00-22:59
    NIGHT = "night"  # 23:00-04:59


def part_of_day(local: datetime) -> PartOfDay:
    """The part of the day of a local time."""
    if 5 <= local.hour < 12:
        return PartOfDay.MORNING
    if 12 <= local.hour < 18:
        return PartOfDay.AFTERNOON
    if 18 <= local.hour < 23:
        return PartOfDay.EVENING
    return PartOfDay.NIGHT


def is_weekend(local: datetime) -> bool:
    """Whether a local time is on a Saturday or Sunday."""
    return local.weekday() >= 5


# -- trust (SPEC 6.8): only the operator's words and the engine's own measurements guide agents by themselves; all
# other text is evidence, quoted with its source, and guides only after the operator approved it


class Trust(StrEnum):
    """The origin of a text, the most trusted first."""

    OPERATOR = "operator"  # the operator's own words and edits
    MEASURED = "measured"  # the engine's own words about what it measured: tests, times, counts, exit codes, landings
    QUOTED = "quoted"  # words of tools, files, models and agents


_ORDER = list(Trust)


def find_lowest_trust(trusts: Iterable[Trust]) -> Trust:
    """The lowest of several trusts, for a text that consists of several parts; `QUOTED` for none."""
    return max(trusts, key=_ORDER.index, default=Trust.QUOTED)


def find_trust_of_names(names: Iterable[str]) -> Trust:
    """The trust of a sentence of the engine that contains these names of tests or files. It is lower if a name could
    carry a message: one with a space may be a sentence, and one with two slashes in a row an address."""
    return Trust.MEASURED if all(_NAME.fullmatch(name) for name in names) else Trust.QUOTED


def label_trust(trust: Trust | None, *, approved: bool = False) -> str:
    """The label as the operator reads it, "" for the product's own words."""
    if trust is None:
        return ""
    return APPROVED if approved and trust is Trust.QUOTED else trust.value


def may_guide(trust: Trust, *, approved: bool) -> bool:
    """Whether a text may be guidance in a prompt."""
    return approved or trust is not Trust.QUOTED


class Layer(StrEnum):
    """The seven layers (SPEC 4.1-4.7)."""

    MARKDOWN = "A"
    LEDGER = "B"
    VECTORS = "C"
    CAPTURE = "D"
    CONTEXT = "E"
    GRAPH = "F"
    PARA = "G"


@frozen
class LayerState:
    """The state of a layer: ready, building, degraded or off. `progress` is from 0 to 1, `fresh_at` the time of its
    newest entry."""

    layer: Layer
    count: int
    fresh_at: datetime | None
    state: str
    words: str = ""
    progress: float = 1.0
