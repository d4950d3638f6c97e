"""Autonomy: when cards run by themselves (SPEC 7.1-7.4), and what is due (4.1).

Here is the state machine (7.1), as a table of transitions and pure functions, and the operator's presence (2.2), on
which it depends most. `OperatorPresence` remembers the operator's last activity: in the console, by a verb or the API,
or a change of files. `schedule` runs jobs, `heartbeat` makes tasks of due items, `autonomous_runs` runs cards without
an approval. `autonomy` is the service. It may import prediction, execution, safety and what is below.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from engine.clock import Clock
from engine.frozen import frozen
from engine.model import MAX_REJECTIONS, MIN_ABSENCE, AutonomyState
from engine.storage import state
from engine.storage.database import Database

PRESENCE_KEY = "autonomy.presence"

MIN_WRITE_INTERVAL = timedelta(seconds=30)
"""Minimum time between two writes to the disk. A crash loses at most so much."""


class AutonomyTrigger(StrEnum):
    """The cause of a transition. The value is shown to the operator."""

    ENABLED = "enabled and not stopped"
    KILLED = "kill switch"
    SILENT = "you are inactive"
    OPERATOR_SPOKE = "you are back"
    AUTONOMY_OFF = "autonomous mode switched off"
    CARD_READY = "a card can run"
    REJECTED = f"{MAX_REJECTIONS} dismissals in a row"
    COST_CAP = "cost cap reached"
    RESUMED = "resumed by you"
    PAUSE_OVER = "2 h passed"


_ENABLED = (AutonomyState.WATCHING, AutonomyState.PRIMING, AutonomyState.AUTONOMOUS, AutonomyState.PAUSED)

TRANSITIONS: dict[tuple[AutonomyState, AutonomyTrigger], AutonomyState] = {
    (AutonomyState.DISABLED, AutonomyTrigger.ENABLED): AutonomyState.WATCHING,
    (AutonomyState.WATCHING, AutonomyTrigger.SILENT): AutonomyState.PRIMING,
    (AutonomyState.PRIMING, AutonomyTrigger.CARD_READY): AutonomyState.AUTONOMOUS,
    (AutonomyState.PRIMING, AutonomyTrigger.OPERATOR_SPOKE): AutonomyState.WATCHING,
    (AutonomyState.AUTONOMOUS, AutonomyTrigger.OPERATOR_SPOKE): AutonomyState.WATCHING,
    (AutonomyState.PRIMING, AutonomyTrigger.AUTONOMY_OFF): AutonomyState.WATCHING,
    (AutonomyState.AUTONOMOUS, AutonomyTrigger.AUTONOMY_OFF): AutonomyState.WATCHING,
    (AutonomyState.PAUSED, AutonomyTrigger.RESUMED): AutonomyState.WATCHING,
    (AutonomyState.PAUSED, AutonomyTrigger.PAUSE_OVER): AutonomyState.WATCHING,
    **{(state, AutonomyTrigger.KILLED): AutonomyState.DISABLED for state in _ENABLED},
    **{(state, AutonomyTrigger.REJECTED): AutonomyState.PAUSED for state in _ENABLED},
    **{(state, AutonomyTrigger.COST_CAP): AutonomyState.PAUSED for state in _ENABLED},
}
"""All transitions. A trigger without an entry for a state changes nothing."""


class Transition(NamedTuple):
    """The state after a transition, and its cause."""

    state: AutonomyState
    cause: AutonomyTrigger


@frozen
class AutonomyFacts:
    """The facts that triggers follow from."""

    may_run: bool
    """Whether anything may run."""
    holds: frozenset[str]
    """The words of the active holds, see `HoldKind`."""
    is_autonomous_mode_on: bool
    """Whether autonomous mode is on."""
    silence: timedelta
    """How long the operator has been inactive."""
    threshold: timedelta
    """The silence after which cards may run by themselves."""
    was_resumed: bool
    """Whether the operator ended the last pause or month stop."""
    is_paused_for_cost: bool
    """Whether the active pause is because of a cost cap."""

    @property
    def pause_cause(self) -> AutonomyTrigger | None:
        """Why autonomy must be paused, None if it need not."""
        if "month" in self.holds:
            return AutonomyTrigger.COST_CAP
        if "pause" in self.holds:
            return AutonomyTrigger.COST_CAP if self.is_paused_for_cost else AutonomyTrigger.REJECTED
        return None


def find_next_trigger(state: AutonomyState, facts: AutonomyFacts) -> AutonomyTrigger | None:
    """The trigger that follows from the facts in this state, None if the state fits them."""
    if not facts.may_run or "stop" in facts.holds:
        return None if state is AutonomyState.DISABLED else AutonomyTrigger.KILLED
    if state is AutonomyState.DISABLED:
        return AutonomyTrigger.ENABLED
    if facts.pause_cause is not None:
        return None if state is AutonomyState.PAUSED else facts.pause_cause
    if state is AutonomyState.PAUSED:
        return AutonomyTrigger.RESUMED if facts.was_resumed else AutonomyTrigger.PAUSE_OVER
    return _find_trigger_of_presence(state, facts)


def _find_trigger_of_presence(state: AutonomyState, facts: AutonomyFacts) -> AutonomyTrigger | None:
    """The trigger that follows from the operator's silence, while nothing is stopped or paused."""
    is_silent = facts.silence >= facts.threshold
    if state is AutonomyState.WATCHING:
        return AutonomyTrigger.SILENT if is_silent and facts.is_autonomous_mode_on else None
    if not facts.is_autonomous_mode_on:
        return AutonomyTrigger.AUTONOMY_OFF
    return None if is_silent else AutonomyTrigger.OPERATOR_SPOKE


def find_transitions(state: AutonomyState, facts: AutonomyFacts) -> list[Transition]:
    """The transitions that follow from the facts, in order."""
    transitions: list[Transition] = []
    for _ in AutonomyState:
        trigger = find_next_trigger(state, facts)
        if trigger is None:
            break
        state = TRANSITIONS[state, trigger]
        transitions.append(Transition(state, trigger))
    return transitions


def compute_time_until_transition(
    state: AutonomyState, facts: AutonomyFacts, pause_left: timedelta | None
) -> timedelta | None:
    """The time after which `state` changes by itself, None for never. It changes when the operator has been inactive
    for long enough, or at the end of a pause (`pause_left`), unless there is a month stop, too.
    """
    if state is AutonomyState.PAUSED:
        return pause_left if facts.holds == {"pause"} else None
    if state is AutonomyState.WATCHING and facts.is_autonomous_mode_on:
        return facts.threshold - facts.silence
    return None


class OperatorPresence:
    """The operator's last activity: exact in memory, and within half a minute on the disk. Before any activity it is
    the time at which this object was made."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        with database.read() as session:
            stored = state.get(session, PRESENCE_KEY)
        self._written_at = datetime.fromisoformat(stored["at"]) if stored else None
        self._last_activity = self._written_at or clock.now()
        absent_since = stored.get("left") if stored else None
        self._absent_since = datetime.fromisoformat(absent_since) if absent_since else None

    def note_now(self) -> None:
        """The operator did something."""
        self.note(self._clock.now())

    def note(self, at: datetime) -> None:
        """The operator did something at `at`, for example a change of files that was found later. If a later activity
        is known, nothing changes."""
        with self._lock:
            if at <= self._last_activity and self._written_at is not None:
                return
            if at - self._last_activity >= MIN_ABSENCE:
                self._absent_since = self._last_activity
            self._last_activity = max(at, self._last_activity)
            is_write_due = self._written_at is None or abs(at - self._written_at) >= MIN_WRITE_INTERVAL
            if is_write_due:
                self._written_at = at
            absent_since = self._absent_since.isoformat() if self._absent_since else None
        if is_write_due:
            self._database.write(lambda tx: state.put(tx, PRESENCE_KEY, {"at": at.isoformat(), "left": absent_since}))

    def measure_silence(self) -> timedelta:
        """Time since the last activity, never negative."""
        with self._lock:
            return max(timedelta(0), self._clock.now() - self._last_activity)

    def find_absence_start(self) -> datetime | None:
        """When the present absence began, or else the last one. None if there was none."""
        with self._lock:
            return self._last_activity if self._clock.now() - self._last_activity >= MIN_ABSENCE else self._absent_since

    def read_last_activity(self) -> datetime:
        """The time of the last activity."""
        with self._lock:
            return self._last_activity
