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
class ModelCallBegan(Event):
    """A call of a model, or a turn of an agent, began. Volatile: the table of calls is the record."""

    volatile: ClassVar[bool] = True
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEnded(Event):
    """It ended: "done", "failed", "cancelled" or "interrupted"."""

    volatile: ClassVar[bool] = True
    session_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAsked(Event):
    """A session wants something that a person must look at (SPEC 9.3)."""

    session_id: str
    tool: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionAnswered(Event):
    """`answer` is a `PermissionAnswer`; `by` names the request whose answer for the session counted again."""

    session_id: str
    tool: str
    answer: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionWithdrawn(Event):
    """Its session ended before anybody answered."""

    session_id: str
    tool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRefused(Event):
    """A session (`subject`) was not let do something: by the content filter, its agent's policy, or the jail."""

    tool: str
    what: str
    rule: str
    reason: str


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
    """Thrown away, or, when `continued_in` names a session, part of that one's change set now."""

    session_id: str
    continued_in: str = ""


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
class AgentFileChanged(Event):
    """A file of an agent (`subject`) was edited (SPEC 4.1), or, without `file`, a folder came or went that has none of
    an agent's files. `how`: "in the console", "by the engine", or "on disk" when another program did it, or nobody said
    who."""

    file: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAssigned(Event):
    """The operator said which tier an agent is; None lets the other rules decide again (SPEC 1.2)."""

    tier: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceApplied(Event):
    """A call of an agent's model (`subject` is the agent) carried its leaders' guidance (SPEC 1.10). `items` lead to
    what was said, for instance `cto#patterns/api_first`, `wordings` tell how, in the same order."""

    session_id: str
    call: str
    chain: tuple[str, ...]
    sources: tuple[str, ...]
    items: tuple[str, ...]
    wordings: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WisdomTaught(Event):
    """The "Inherited Wisdom" of an agent's `soul.md` was written anew (SPEC 1.6)."""

    leaders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingRefreshed(Event):
    """A round of soul enrichment reached every worker (SPEC 1.6): so many souls were rewritten, so many said already
    what they would."""

    taught: int
    unchanged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceFoundNoisy(Event):
    """Something that leaders say (`subject`, for instance `cto#patterns/api_first`) goes with worse work of an agent.

    Of `told` sessions that carried it `told_bad` ended badly, of `untold` of the same agent without it `untold_bad`;
    with 99 % confidence its share is worse by more than `harm`, from 0 to 1 (see `hierarchy.outcomes`).
    """

    leader: str
    agent: str
    wording: str
    told: int
    told_bad: int
    untold: int
    untold_bad: int
    harm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceFoundStale(Event):
    """Something that leaders say (`subject`) has outlived its time: it is `days` old where `most` are the rule, or
    names files that are `gone` (see `hierarchy.outcomes`). `told` sessions of the last 30 days carried it."""

    leader: str
    wording: str
    days: int
    most: int
    told: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleQueued(Event):
    """A learning passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleRefused(Event):
    """A learning stays where it is; `gate` says which gate refused it, `reason` why."""

    agent: str
    gate: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBubbleFlushed(Event):
    """Bubbles became, or joined, patterns of a leader (`subject`), in this order (SPEC 1.8), with the confidence and
    importance, 0 to 1, that took each through the gates."""

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEdited(Event):
    """A leader's profile (`subject`) was changed by the operator: which section, and which item of it."""

    section: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSyncFailed(Event):
    """What machines share could not be sent or fetched (SPEC 1.8, 1.9, 4.5): `subject` is "leadership" or "summaries".
    What is unsent waits."""

    message: str
    unsent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMemoryRecalled(Event):
    """A call of an agent's model (`subject` is the agent) was served summaries that other machines shared (SPEC 4.5):
    which `memories`, and from which homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactPromoted(Event):
    """A fact (`subject`) joined layer G (SPEC 4.8). `by` is "operator" or "nightly"; `draft` its draft, "" for none."""

    by: str
    draft: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRejected(Event):
    """The operator turned a draft of a fact (`subject`) down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyFinished(Event):
    """The day `subject` (local, `2026-01-05`) was worked through (SPEC 4.8): facts that a model promoted, drafts that
    wait for the operator, what it cost, and why there was no promotion."""

    promoted: int
    drafted: int
    cost: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForgotten(Event):
    """Something was forgotten at the operator's word (SPEC 4.10); of it only the number of places is known."""

    places: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationFailed(Event):
    """Healing was given up: `failing` tests stay red, after so many `attempts` and micro-dollars (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationHealed(Event):
    """What an agent broke, it mended: `failing` tests were red at its first attempt (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRepeated(Event):
    """A try to heal left exactly the same tests red as the one before (SPEC 4.9)."""

    agent: str
    attempts: int
    cost: int
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOverlapped(Event):
    """What two sessions changed touches the same files; `conflicting` ones would not land after each other. `subject`
    is the change set that came later, `other` the one that waits already."""

    session_id: str
    agent: str
    other: str
    other_session_id: str
    files: tuple[str, ...]
    conflicting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentErred(Event):
    """A tool call of an agent's failed in a way that it cannot have meant, or its model or program did."""

    agent: str
    tool: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsUsed(Event):
    """The tool calls of a session in order, each as `tool` or `exec:program word`; at most 500."""

    agent: str
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Event):
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActed(Event):
    """The operator did something outside the console: files, index or HEAD moved (SPEC 2.2)."""

    what: str


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
