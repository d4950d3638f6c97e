"""How sure and how weighty a learning is, from how it was established and what it touched (SPEC 6.7). Pure."""

from __future__ import annotations

from engine.model.base import MICRO
from engine.model.text import count
from engine.model.wisdom import Basis, Score, Touched

CONFIDENCE = {
    Basis.TESTS: (0.9, "tests confirmed it"),
    Basis.OPERATOR: (0.9, "you confirmed it"),
    Basis.REPEATED: (0.75, "it was observed repeatedly"),
    Basis.SINGLE: (0.5, "it was observed once"),
    Basis.MODEL: (0.4, "a model claims it"),
}

FAILURE, TIME, COST, REACH = 0.4, 0.2, 0.15, 0.25
"""What a failure avoided, half an hour, half a dollar and five things concerned weigh. They sum to 1. A failure avoided
that concerns four things weighs 0.60, what the gate of importance asks for."""

FULL_SECONDS, FULL_COST, FULL_REACH = 1800.0, MICRO // 2, 5


def confidence(basis: Basis, observed: int = 1) -> Score:
    """How sure it is. `observed` is in how many separate sessions it was seen: what was seen once, seen again, is
    repeated; more of the same makes it no surer."""
    if basis is Basis.SINGLE and observed > 1:
        basis = Basis.REPEATED
    value, reason = CONFIDENCE[basis]
    return Score(value, (f"{reason} ({observed} times)" if basis is Basis.REPEATED and observed > 1 else reason,))


def importance(touched: Touched) -> Score:
    """How much it weighs, from 0 to 1, rounded to hundredths: the more failure, time, cost and reach, the more."""
    parts = [
        (FAILURE if touched.failure_avoided else 0.0, "a failure was avoided"),
        (TIME * _share(touched.seconds, FULL_SECONDS), f"{count(round(touched.seconds / 60), 'minute')} of work"),
        (COST * _share(touched.cost, FULL_COST), f"${touched.cost / MICRO:.2f} spent on it"),
        (REACH * _share(touched.reach, FULL_REACH), f"it concerns {_things(touched.reach)}"),
    ]
    return Score(
        round(sum(value for value, _ in parts), 2),
        tuple(f"{words}: +{value:.2f}" for value, words in parts if value >= 0.005) or ("it affected nothing",),
    )


def _things(reach: int) -> str:
    return "one thing" if reach == 1 else f"{reach} things"


def _share(amount: float, full: float) -> float:
    return min(1.0, max(0.0, amount / full))
