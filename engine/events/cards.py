"""Cycles, cards and tasks, and what the operator decided (SPEC 2)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleFinished(Event):
    """A prediction cycle came to its end. `seconds` of wall time; `errors` in words, one for each failed collector."""

    created: int
    withdrawn: int
    seconds: float
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AutonomousCycleFinished(Event):
    """A cycle that may act came to its end (SPEC 7.2). `acted` is the card it started, "" for none; `blocked` and
    `kept` say for each other card what held it back (`pred_…: gate: …`); `reason` why the cycle ended early."""

    acted: str = ""
    blocked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    reason: str = ""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCreated(Event):
    """A card is pending. `tier` is 1 to 4 (SPEC 2.11); `stated`: its confidence says something."""

    flow: str
    channel: str
    confidence: float
    source: str
    tier: int = 3
    stated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionConfirmed(Event):
    decided_by: str
    edited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRejected(Event):
    decided_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalExplained(Event):
    """The operator said why he dismissed a card, in the words of `DismissReason`."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MuteLifted(Event):
    """What was muted by dismissals may come back; `card_kind` is the kind of its cards."""

    card_kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSnoozed(Event):
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionExpired(Event):
    withdrawn: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionReopened(Event):
    """An approval or a dismissal was taken back; the card is pending again."""

    was: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionReassigned(Event):
    """Another would do a pending card of prose now: `served`, "" when nobody would, for want of what `note` names."""

    served: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionExecuted(Event):
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAdded(Event):
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged(Event):
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsExported(Event):
    """A batch of preference pairs was brought out (SPEC 8.3)."""

    pairs: int
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinAnswered(Event):
    """The Twin model (the subject) was asked. `reason`: why its answer could not be used (SPEC 2.3)."""

    usable: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMoved(Event):
    """A training run came to another state (SPEC 8.4); `note` says why."""

    state: str
    note: str
