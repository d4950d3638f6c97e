"""The table of SPEC 8.1: what each kind of behaviour says about a card, and how loudly. Pure."""

from __future__ import annotations

from engine.model import DecisionSignal

LOUD: dict[DecisionSignal, float] = {
    DecisionSignal.APPROVED: 1.0,
    DecisionSignal.ORIGINAL: -1.0,
    DecisionSignal.DISMISSED: -1.0,
    DecisionSignal.KEPT: 0.5,
    DecisionSignal.UNDONE: -0.8,
    DecisionSignal.DISCARDED: -0.8,
    DecisionSignal.EXPIRED: -0.3,
    DecisionSignal.DID_HIMSELF: 0.7,
}
"""How loudly a signal speaks, at most 1: above 0 the operator wanted the card, below 0 not. Snoozing has no entry: it
gives no signal."""

EXPLICIT = (DecisionSignal.APPROVED, DecisionSignal.DISMISSED, DecisionSignal.UNDONE, DecisionSignal.DISCARDED)
"""What a person said about this very card: it counts as a decision (onboarding, phases, "approved n of m"). The
original of an edit is not among them, so that an edit counts as one."""

REJECTING = tuple(signal for signal, loud in LOUD.items() if loud < 0 and signal is not DecisionSignal.ORIGINAL)
"""What can stand as the rejected half of a pair; an edit makes its own pair (SPEC 8.2)."""
