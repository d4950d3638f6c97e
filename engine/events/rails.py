"""Triggers, permits, costs and holds (SPEC 3)."""

from __future__ import annotations

from typing import ClassVar

from engine.events.event import Event, event, money


@event
class TriggerBlocked(Event):
    topics: ClassVar = ("cards", "log")
    rail: str
    verdict: str
    reason: str

    def sentence(self) -> str:
        return f"blocked by {self.rail}: {self.subject}, {self.reason}"


@event
class PermitIssued(Event):
    topics: ClassVar = ("log",)
    prediction_id: str
    digest: str


@event
class LoopDetected(Event):
    topics: ClassVar = ("log",)
    reason: str

    def sentence(self) -> str:
        return f"loop: {self.reason}"


@event
class CostReserved(Event):
    topics: ClassVar = ("costs",)
    amount: int
    channel: str


@event
class CostSettled(Event):
    topics: ClassVar = ("costs",)
    amount: int
    channel: str


@event
class CostWarned(Event):
    """A window passed 80 % of its cap, or reached it."""

    topics: ClassVar = ("costs",)

    window: str
    spent: int
    cap: int

    def sentence(self) -> str:
        return f"cost: {money(self.spent)} of {money(self.cap)} this {self.window}"


@event
class BudgetExceeded(Event):
    """An agent (`subject`) passed, or would have passed, its own budget of the day (SPEC 3.4)."""

    spent: int
    budget: int

    def sentence(self) -> str:
        return f"budget of {self.subject}: {money(self.spent)} of {money(self.budget)}"


@event
class HoldPlaced(Event):
    topics: ClassVar = ("costs", "autonomy")
    reason: str

    def sentence(self) -> str:
        return f"{self.subject}: {self.reason}"


@event
class HoldLifted(Event):
    topics: ClassVar = ("costs", "autonomy")
    reason: str

    def sentence(self) -> str:
        return f"the {self.subject} ended: {self.reason}"
