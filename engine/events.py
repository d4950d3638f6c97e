"""Typed facts in the past tense, and the one bus that carries them (ARCHITECTURE rule 3).

A fact is recorded in the ledger by the transaction that made it true (`Transaction.record`), and put on the bus
only after that transaction was committed. The bus itself is volatile: a slow screen may lose old facts, which is
counted; a service that must not lose any reads the ledger with a cursor of its own.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact. `subject` is the id of what it is about, `workspace` the path it belongs to ("" for none).

    A class with `volatile = True` is never stored: it only feeds screens.
    """

    volatile: ClassVar[bool] = False
    subject: str = ""
    workspace: str = ""

    @property
    def kind(self) -> str:
        """The name under which it is stored, for instance `SessionEnded`."""
        return type(self).__name__

    def payload(self) -> dict[str, Any]:
        """All fields besides subject and workspace, JSON-able."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("subject", "workspace")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStarted(Event):
    version: str
    recovered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStopped(Event):
    pass


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
    flow: str
    channel: str
    confidence: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionConfirmed(Event):
    decided_by: str
    edited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRejected(Event):
    decided_by: str


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
class PredictionExecuted(Event):
    outcome: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """The state machine of SPEC 7.1 moved."""

    before: str
    after: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQueued(Event):
    prediction_id: str
    flow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted(Event):
    prediction_id: str
    sandbox: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutput(Event):
    """New transcript lines; `last_line` is the number of the newest. Volatile: the transcript file is the record."""

    volatile: ClassVar[bool] = True
    last_line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    prediction_id: str
    state: str
    summary: str
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetReady(Event):
    session_id: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetLanded(Event):
    session_id: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetBranched(Event):
    session_id: str
    branch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSetDiscarded(Event):
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingUndone(Event):
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAdded(Event):
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged(Event):
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAdded(Event):
    reports_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMoved(Event):
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRetired(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Event):
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActed(Event):
    """The operator did something outside the console: files, index or HEAD moved (SPEC 2.2)."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReported(Event):
    """Something went wrong that work can go on without: said once, with what, where and how to mend it."""

    where: str
    message: str


class Subscription:
    """A bounded queue of events for one reader. When it is full the oldest is dropped and counted."""

    def __init__(self, bus: EventBus, wake: Callable[[], None], capacity: int) -> None:
        self._bus = bus
        self._wake = wake
        self._events: deque[Event] = deque()
        self._capacity = capacity
        self._lock = threading.Lock()
        self._awake = False
        self.dropped = 0

    def _offer(self, event: Event) -> None:
        with self._lock:
            if len(self._events) >= self._capacity:
                self._events.popleft()
                self.dropped += 1
            self._events.append(event)
            wake = not self._awake
            self._awake = True
        if wake:
            self._wake()

    def drain(self) -> list[Event]:
        """All events since the last drain, oldest first; the next event wakes the reader again."""
        with self._lock:
            events = list(self._events)
            self._events.clear()
            self._awake = False
        return events

    def close(self) -> None:
        """Stop receiving."""
        self._bus._remove(self)


class EventBus:
    """Carries facts to whoever listens, from any thread, without ever waiting for a listener."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, wake: Callable[[], None], *, capacity: int = 10_000) -> Subscription:
        """Listen. `wake` is called once per batch, from the publishing thread, and must return at once
        (for a screen: `loop.call_soon_threadsafe`); the reader then calls `drain`."""
        subscription = Subscription(self, wake, capacity)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)

    def publish(self, event: Event) -> None:
        """Hand `event` to every reader. A reader whose `wake` raises is reported and taken off."""
        for subscription in self._subscriptions:
            try:
                subscription._offer(event)
            except Exception:
                log.exception("a listener failed on %s and was taken off the bus", event.kind)
                self._remove(subscription)
