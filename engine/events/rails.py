"""Triggers, permits, costs and holds (SPEC 3)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerBlocked(Event):
    rail: str
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitIssued(Event):
    prediction_id: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetected(Event):
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReserved(Event):
    amount: int
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettled(Event):
    amount: int
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWarned(Event):
    """A window passed 80 % of its cap, or reached it."""

    window: str
    spent: int
    cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExceeded(Event):
    """An agent (`subject`) passed, or would have passed, its own budget of the day (SPEC 3.4)."""

    spent: int
    budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldPlaced(Event):
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLifted(Event):
    reason: str
