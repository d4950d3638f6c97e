"""Cycles, cards and tasks, what the operator decided (SPEC 2), triggers, permits, costs and holds (SPEC 3)."""

from __future__ import annotations

from engine.events.bus import Event, because, listed
from engine.model import Tier
from engine.model.text import count


class CycleFinished(Event, topics="cards autonomy", says="cards: {created} new, {withdrawn} withdrawn{errors:listed}"):
    """A prediction cycle came to its end. `seconds` of wall time; `errors` in words, one for each failed collector."""

    created: int
    withdrawn: int
    seconds: float
    errors: tuple[str, ...] = ()


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


class PredictionCreated(Event, topics="cards"):
    """A card is pending. `tier` is 1 to 4 (SPEC 2.11); `stated`: its confidence says something."""

    flow: str
    channel: str
    confidence: float
    source: str
    tier: int = 3
    stated: bool = False

    def sentence(self) -> str:
        sure = f"{self.confidence:.0%}, " if self.stated else ""
        return f"card {self.subject}: {self.flow or 'a prompt'} on {self.channel}, {sure}{Tier(self.tier).word}"


class PredictionConfirmed(Event, topics="cards phase", says="approved by {decided_by:by}: {subject}"):
    decided_by: str
    edited: bool = False


class PredictionRejected(Event, topics="cards phase", says="dismissed by {decided_by:by}: {subject}"):
    decided_by: str


class DismissalExplained(Event, topics="cards phase", says="dismissed as {reason:words}: {subject}"):
    """The operator gave a reason for dismissing a card: a `DismissReason`."""

    reason: str


class MuteLifted(Event, topics="cards"):
    """What was muted by dismissals may come back; `card_kind` is the kind of its cards, `title` its title."""

    card_kind: str
    title: str = ""

    def sentence(self) -> str:
        return f"unmuted: cards “{self.title or self.card_kind}” ({self.subject})"


class PredictionSnoozed(Event, topics="cards", says="snoozed until {until:local}: {subject}"):
    until: str


class PredictionExpired(Event, topics="cards"):
    withdrawn: bool
    reason: str

    def sentence(self) -> str:
        return f"{'withdrawn' if self.withdrawn else 'expired'}: {self.subject}, {self.reason}"


class PredictionReopened(Event, topics="cards phase", says="pending again: {subject}"):
    """An approval or a dismissal was taken back; the card is pending again."""

    was: str


class PredictionReassigned(Event, topics="cards"):
    """Another would do a pending card of prose now: `served`, "" when nobody would, for want of what `note` names."""

    served: str
    note: str

    def sentence(self) -> str:
        if self.served:
            return f"card {self.subject} would run on {self.served}"
        return f"nothing can run card {self.subject}{because(self.note)}"


class PredictionExecuted(Event, topics="cards phase", says="finished: {subject}, {outcome:words}"):
    outcome: str


class TaskAdded(Event, topics="tasks", says="task {subject}: {title}"):
    title: str


class TaskChanged(Event, topics="tasks", says="task {subject}: {state}"):
    state: str


class PairsExported(Event, says="{pairs:count preference pair} written to {file}"):
    """A batch of preference pairs was brought out (SPEC 8.3)."""

    pairs: int
    file: str


class TwinAnswered(Event):
    """The Twin model (the subject) was asked. `reason`: why its answer could not be used (SPEC 2.3)."""

    usable: bool
    reason: str

    def sentence(self) -> str:
        if self.usable:
            return f"Twin model {self.subject} answered"
        return f"Twin model {self.subject} gave no usable answer{because(self.reason)}"


class TrainingMoved(Event, topics="training", says="training {subject} is {state:words}{note:because}"):
    """A training run came to another state (SPEC 8.4); `note` says why."""

    state: str
    note: str


# -- rails


class TriggerBlocked(Event, topics="cards log", says="blocked by {rail}: {subject}, {reason}"):
    rail: str
    verdict: str
    reason: str


class PermitIssued(Event, topics="log"):
    prediction_id: str
    digest: str


class LoopDetected(Event, topics="log", says="loop: {reason}"):
    reason: str


class CostReserved(Event, topics="costs"):
    amount: int
    channel: str


class CostSettled(Event, topics="costs"):
    amount: int
    channel: str


class CostWarned(Event, topics="costs", says="cost: {spent:money} of {cap:money} this {window}"):
    """A window passed 80 % of its cap, or reached it."""

    window: str
    spent: int
    cap: int


class BudgetExceeded(Event, says="budget of {subject}: {spent:money} of {budget:money}"):
    """An agent (`subject`) passed, or would have passed, its own budget of the day (SPEC 3.4)."""

    spent: int
    budget: int


class HoldPlaced(Event, topics="costs autonomy", says="{subject}: {reason}"):
    reason: str


class HoldLifted(Event, topics="costs autonomy", says="the {subject} ended: {reason}"):
    reason: str
