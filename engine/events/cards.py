"""Cycles, cards and tasks, and what the operator decided (SPEC 2)."""

from __future__ import annotations

from typing import ClassVar

from engine.events.bus import Event, because, by, event, listed, local, money
from engine.model import Tier
from engine.model.text import count


@event
class CycleFinished(Event):
    """A prediction cycle came to its end. `seconds` of wall time; `errors` in words, one for each failed collector."""

    topics: ClassVar = ("cards", "autonomy")

    created: int
    withdrawn: int
    seconds: float
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"cards: {self.created} new, {self.withdrawn} withdrawn" + listed(self.errors)


@event
class AutonomousCycleFinished(Event):
    """A cycle that may act came to its end (SPEC 7.2). `acted` is the card it started, "" for none; `blocked` and
    `kept` say for each other card what held it back (`pred_…: gate: …`); `reason` why the cycle ended early."""

    acted: str = ""
    blocked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str = ""
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        done = f"started {self.acted}" if self.acted else self.reason or "nothing may run by itself"
        holds = [f"{len(self.blocked)} blocked"] if self.blocked else []
        holds += [f"{count(len(self.kept), 'card')} left to you"] if self.kept else []
        return ", ".join([f"autonomous cycle: {done}", *holds]) + listed(self.errors)


@event
class PredictionCreated(Event):
    """A card is pending. `tier` is 1 to 4 (SPEC 2.11); `stated`: its confidence says something."""

    topics: ClassVar = ("cards",)

    flow: str
    channel: str
    confidence: float
    source: str
    tier: int = 3
    stated: bool = False

    def sentence(self) -> str:
        sure = f"{self.confidence:.0%}, " if self.stated else ""
        return f"card {self.subject}: {self.flow or 'a prompt'} on {self.channel}, {sure}{Tier(self.tier).word}"


@event
class PredictionConfirmed(Event):
    topics: ClassVar = ("cards", "phase")
    decided_by: str
    edited: bool = False

    def sentence(self) -> str:
        return f"approved by {by(self.decided_by)}: {self.subject}"


@event
class PredictionRejected(Event):
    topics: ClassVar = ("cards", "phase")
    decided_by: str

    def sentence(self) -> str:
        return f"dismissed by {by(self.decided_by)}: {self.subject}"


@event
class DismissalExplained(Event):
    """The operator gave a reason for dismissing a card: a `DismissReason`."""

    topics: ClassVar = ("cards", "phase")

    reason: str

    def sentence(self) -> str:
        return f"dismissed as {self.reason.replace('-', ' ')}: {self.subject}"


@event
class MuteLifted(Event):
    """What was muted by dismissals may come back; `card_kind` is the kind of its cards, `title` its title."""

    topics: ClassVar = ("cards",)

    card_kind: str
    title: str = ""

    def sentence(self) -> str:
        return f"unmuted: cards “{self.title or self.card_kind}” ({self.subject})"


@event
class PredictionSnoozed(Event):
    topics: ClassVar = ("cards",)
    until: str

    def sentence(self) -> str:
        return f"snoozed until {local(self.until)}: {self.subject}"


@event
class PredictionExpired(Event):
    topics: ClassVar = ("cards",)
    withdrawn: bool
    reason: str

    def sentence(self) -> str:
        return f"{'withdrawn' if self.withdrawn else 'expired'}: {self.subject}, {self.reason}"


@event
class PredictionReopened(Event):
    """An approval or a dismissal was taken back; the card is pending again."""

    topics: ClassVar = ("cards", "phase")

    was: str

    def sentence(self) -> str:
        return f"pending again: {self.subject}"


@event
class PredictionReassigned(Event):
    """Another would do a pending card of prose now: `served`, "" when nobody would, for want of what `note` names."""

    topics: ClassVar = ("cards",)

    served: str
    note: str

    def sentence(self) -> str:
        if self.served:
            return f"card {self.subject} would run on {self.served}"
        return f"nothing can run card {self.subject}{because(self.note)}"


@event
class PredictionExecuted(Event):
    topics: ClassVar = ("cards", "phase")
    outcome: str

    def sentence(self) -> str:
        return f"finished: {self.subject}, {self.outcome.replace('_', ' ')}"


@event
class TaskAdded(Event):
    topics: ClassVar = ("tasks",)
    title: str

    def sentence(self) -> str:
        return f"task {self.subject}: {self.title}"


@event
class TaskChanged(Event):
    topics: ClassVar = ("tasks",)
    state: str

    def sentence(self) -> str:
        return f"task {self.subject}: {self.state}"


@event
class PairsExported(Event):
    """A batch of preference pairs was brought out (SPEC 8.3)."""

    pairs: int
    file: str

    def sentence(self) -> str:
        return f"{count(self.pairs, 'preference pair')} written to {self.file}"


@event
class TwinAnswered(Event):
    """The Twin model (the subject) was asked. `reason`: why its answer could not be used (SPEC 2.3)."""

    usable: bool
    reason: str

    def sentence(self) -> str:
        if self.usable:
            return f"Twin model {self.subject} answered"
        return f"Twin model {self.subject} gave no usable answer{because(self.reason)}"


@event
class TrainingMoved(Event):
    """A training run came to another state (SPEC 8.4); `note` says why."""

    topics: ClassVar = ("training",)

    state: str
    note: str

    def sentence(self) -> str:
        return f"training {self.subject} is {self.state.replace('_', ' ')}{because(self.note)}"


# Triggers, permits, costs and holds (SPEC 3).


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
