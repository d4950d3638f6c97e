"""The table of SPEC 8.1: what each kind of behaviour says about a card, and how loudly. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.values import DecisionSignal


@dataclass(frozen=True, slots=True)
class Meaning:
    """`chosen`: the operator wanted it. `weight` in (0, 1]. `explicit`: a person said it about this very card."""

    chosen: bool
    weight: float
    explicit: bool


MEANINGS: dict[DecisionSignal, Meaning] = {
    DecisionSignal.APPROVED: Meaning(chosen=True, weight=1.0, explicit=True),
    DecisionSignal.ORIGINAL: Meaning(chosen=False, weight=1.0, explicit=False),
    DecisionSignal.DISMISSED: Meaning(chosen=False, weight=1.0, explicit=True),
    DecisionSignal.KEPT: Meaning(chosen=True, weight=0.5, explicit=False),
    DecisionSignal.UNDONE: Meaning(chosen=False, weight=0.8, explicit=True),
    DecisionSignal.DISCARDED: Meaning(chosen=False, weight=0.8, explicit=True),
    DecisionSignal.EXPIRED: Meaning(chosen=False, weight=0.3, explicit=False),
    DecisionSignal.DID_HIMSELF: Meaning(chosen=True, weight=0.7, explicit=False),
}
"""Snoozing has no entry: it gives no signal. `ORIGINAL` is not explicit, so that an edit counts as one decision."""

EXPLICIT: tuple[DecisionSignal, ...] = tuple(signal for signal, meaning in MEANINGS.items() if meaning.explicit)
"""What counts as a decision (onboarding, phases, "approved n of m")."""

REJECTING: tuple[DecisionSignal, ...] = tuple(
    signal for signal, meaning in MEANINGS.items() if not meaning.chosen and signal is not DecisionSignal.ORIGINAL
)
"""What can stand as the rejected half of a pair; an edit makes its own pair (SPEC 8.2)."""
