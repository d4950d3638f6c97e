"""Scores of a learning (SPEC 6.7): how certain it is, by its evidence, and how important, by its effects. Pure."""

from __future__ import annotations

from enum import StrEnum

from engine.frozen import frozen
from engine.model import MICRO, Score
from engine.model.text import count


class Basis(StrEnum):
    """The evidence for a learning (SPEC 6.7)."""

    TESTS = "tests"
    OPERATOR = "operator"
    REPEATED = "repeated"
    SINGLE = "single"
    MODEL = "model"


@frozen
class Impact:
    """The effects of a learning."""

    failure_avoided: bool = False
    seconds: float = 0.0
    """Spent, or possible to save."""
    cost: int = 0
    """In micro-dollars, spent, or possible to save."""
    reach: int = 1
    """Number of tests, files or sessions."""


CONFIDENCE_BY_BASIS = {
    Basis.TESTS: (0.9, "tests confirmed it"),
    Basis.OPERATOR: (0.9, "you confirmed it"),
    Basis.REPEATED: (0.75, "it was observed repeatedly"),
    Basis.SINGLE: (0.5, "it was observed once"),
    Basis.MODEL: (0.4, "a model claims it"),
}

FAILURE_WEIGHT = 0.4
TIME_WEIGHT = 0.2
COST_WEIGHT = 0.15
REACH_WEIGHT = 0.25
"""Weights of a failure avoided, half an hour, half a dollar and five things concerned. They sum to 1. A failure avoided
that concerns four things gives 0.60, what the gate of importance asks for."""

FULL_SECONDS, FULL_COST, FULL_REACH = 1800.0, MICRO // 2, 5
"""The time, the cost in micro-dollars and the number of things that give all of their weight."""


def confidence(basis: Basis, observed: int = 1) -> Score:
    """The confidence of a learning. `observed` is the number of sessions that observed it; more than one make a single
    observation a repeated one."""
    if basis is Basis.SINGLE and observed > 1:
        basis = Basis.REPEATED
    value, reason = CONFIDENCE_BY_BASIS[basis]
    return Score(value, (f"{reason} ({observed} times)" if basis is Basis.REPEATED and observed > 1 else reason,))


def importance(impact: Impact) -> Score:
    """The importance of a learning, from 0 to 1, rounded to hundredths, by failure, time, cost and reach."""
    parts = [
        (FAILURE_WEIGHT if impact.failure_avoided else 0.0, "a failure was avoided"),
        (TIME_WEIGHT * _share(impact.seconds, FULL_SECONDS), f"{count(round(impact.seconds / 60), 'minute')} of work"),
        (COST_WEIGHT * _share(impact.cost, FULL_COST), f"${impact.cost / MICRO:.2f} spent on it"),
        (REACH_WEIGHT * _share(impact.reach, FULL_REACH), f"it concerns {_things(impact.reach)}"),
    ]
    return Score(
        round(sum(value for value, _ in parts), 2),
        tuple(f"{words}: +{value:.2f}" for value, words in parts if value >= 0.005) or ("it affected nothing",),
    )


def _things(reach: int) -> str:
    return "one thing" if reach == 1 else f"{reach} things"


def _share(amount: float, full: float) -> float:
    return min(1.0, max(0.0, amount / full))
