"""Events about prediction cycles, cards and the decisions on them, and tasks (SPEC 2)."""

from __future__ import annotations

from engine.events.event import Event
from engine.model import Tier
from engine.model.rails import decider
from engine.model.text import because, count, in_words, local_time


class CycleFinished(Event, topics="cards autonomy"):
    """A prediction cycle ended. `seconds` is its wall time; `errors` has a message for each failed collector."""

    created: int
    withdrawn: int
    seconds: float
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        return f"cards: {self.created} new, {self.withdrawn} withdrawn{because(*self.errors)}"


class AutonomousCycleFinished(Event):
    """A cycle that may start cards ended (SPEC 7.2). `acted` is the card that it started, "" for none. `blocked` and
    `kept` say for each other card why it was not started (`pred_…: gate: …`). `reason` says why the cycle ended
    early."""

    acted: str = ""
    blocked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str = ""
    errors: tuple[str, ...] = ()

    def sentence(self) -> str:
        done = f"started {self.acted}" if self.acted else self.reason or "nothing may run by itself"
        holds = [f"{len(self.blocked)} blocked"] if self.blocked else []
        holds += [f"{count(len(self.kept), 'card')} left to you"] if self.kept else []
        return ", ".join([f"autonomous cycle: {done}", *holds]) + because(*self.errors)


class PredictionCreated(Event, topics="cards"):
    """A card is pending. `tier` is 1 to 4 (SPEC 2.11). `stated` is False if its confidence is that of a cold start."""

    flow: str
    channel: str
    confidence: float
    source: str
    tier: int = 3
    stated: bool = False

    def sentence(self) -> str:
        sure = f"{self.confidence:.0%}, " if self.stated else ""
        return f"card {self.subject}: {self.flow or 'a prompt'} on {self.channel}, {sure}{Tier(self.tier).word}"


class PredictionConfirmed(Event, topics="cards phase"):
    """A card was approved; `edited` if its prompt was changed before."""

    decided_by: str
    edited: bool = False

    def sentence(self) -> str:
        return f"approved by {decider(self.decided_by)}: {self.subject}"


class PredictionRejected(Event, topics="cards phase"):
    """A card was dismissed."""

    decided_by: str

    def sentence(self) -> str:
        return f"dismissed by {decider(self.decided_by)}: {self.subject}"


class DismissalExplained(Event, topics="cards phase"):
    """The operator gave a reason for dismissing a card: a `DismissReason`."""

    reason: str

    def sentence(self) -> str:
        return f"dismissed as {in_words(self.reason)}: {self.subject}"


class MuteLifted(Event, topics="cards"):
    """A subject that dismissals had muted may appear again. `card_kind` is the kind of its cards, `title` its title."""

    card_kind: str
    title: str = ""

    def sentence(self) -> str:
        return f"unmuted: cards “{self.title or self.card_kind}” ({self.subject})"


class PredictionSnoozed(Event, topics="cards"):
    """A card is not shown before `until`, an instant in ISO format."""

    until: str

    def sentence(self) -> str:
        return f"snoozed until {local_time(self.until)}: {self.subject}"


class PredictionExpired(Event, topics="cards"):
    """The time of a card is over, or, if `withdrawn`, its evidence is gone."""

    withdrawn: bool
    reason: str

    def sentence(self) -> str:
        return f"{'withdrawn' if self.withdrawn else 'expired'}: {self.subject}, {self.reason}"


class PredictionReopened(Event, topics="cards phase"):
    """A decision was undone; `was` is the status that the card had."""

    was: str

    def sentence(self) -> str:
        return f"pending again: {self.subject}"


class PredictionReassigned(Event, topics="cards"):
    """Another model or agent, `served`, would now carry out a pending card. If it is "", none can, and `note` says
    why."""

    served: str
    note: str

    def sentence(self) -> str:
        if self.served:
            return f"card {self.subject} would run on {self.served}"
        return f"nothing can run card {self.subject}{because(self.note)}"


class PredictionExecuted(Event, topics="cards phase"):
    """The session of a card ended. `outcome` is a `model.cards.Outcome`."""

    outcome: str

    def sentence(self) -> str:
        return f"finished: {self.subject}, {in_words(self.outcome)}"


class TaskAdded(Event, topics="tasks"):
    """A task was put on the board."""

    title: str

    def sentence(self) -> str:
        return f"task {self.subject}: {self.title}"


class TaskChanged(Event, topics="tasks"):
    """A task has another `state`, as in `model.organisation.Task`."""

    state: str

    def sentence(self) -> str:
        return f"task {self.subject}: {self.state}"
