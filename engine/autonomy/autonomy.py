"""The autonomy port: the state of SPEC 7.1 as it follows from facts, quiet hours, and the card cycle (SPEC 2.9).

Nothing executes by itself yet: the machine goes where the table sends it, the autonomous cycle comes later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from engine.autonomy.presence import Presence
from engine.autonomy.quiet_hours import add_active, is_quiet
from engine.autonomy.schedule import Job, Schedule
from engine.autonomy.state import Facts, Input, State, next_state, settle
from engine.clock import Clock
from engine.config import SettingsSource
from engine.events import StateChanged
from engine.storage import state as stored
from engine.storage.database import Database, Transaction
from engine.values import Hold, RailVerdict, Verdict

KEY = "autonomy.state"
DND_KEY = "autonomy.dnd_until"
CARDS, STATE = "cards", "state"
STATE_EVERY = timedelta(seconds=30)


class Holds(Protocol):
    """What the machine asks of the kill switch."""

    def holds(self) -> list[Hold]:
        """The holds in force."""

    def ask(self, *, by_operator: bool = False) -> RailVerdict:
        """May anything run now?"""


@dataclass(frozen=True, slots=True)
class StateView:
    """The state, why, since when, and when time alone will change it (the end of a pause or of a silence)."""

    state: State
    cause: str
    since: datetime
    next_change: datetime | None


class Autonomy:
    """Keeps the state. `card_cycle()` makes cards; `expire_due()` expires those whose time is over."""

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        *,
        holds: Holds,
        card_cycle: Callable[[], object],
        expire_due: Callable[[], object] = lambda: None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._holds = holds
        self._expire_due = expire_due
        self._changing = threading.Lock()
        self.presence = Presence(database, clock)
        self.schedule = Schedule(
            database,
            clock,
            [
                Job(CARDS, self._card_interval, card_cycle, self.operator_there),
                Job(STATE, lambda: STATE_EVERY, self._tick),
            ],
        )
        with database.read() as session:
            kept = stored.get(session, KEY)
            dnd = stored.get(session, DND_KEY)
        self._dnd_until = datetime.fromisoformat(dnd) if dnd else None
        if kept:
            since = datetime.fromisoformat(kept["since"])
            self._view = StateView(State(kept["state"]), kept["cause"], since, None)
        else:
            self._view = StateView(State.DISABLED, "first start", clock.now(), None)

    def start(self) -> None:
        """Settle the state and begin the schedule."""
        self.evaluate()
        self.schedule.start()

    def close(self) -> None:
        """Stop the schedule."""
        self.schedule.close()

    def poke(self) -> None:
        """Something the state depends on changed: look again soon. Quick, from any thread."""
        self.schedule.soon(STATE)

    def state(self) -> StateView:
        """The state by the facts as they are now; a change it finds is recorded."""
        return self.evaluate()

    def evaluate(self) -> StateView:
        """Let the facts move the machine, one recorded move after the other. Must not run inside a write."""
        with self._changing:
            facts, next_change = self._facts()
            moves = settle(self._view.state, facts)
            if moves:
                self._database.write(lambda transaction: self._apply(transaction, moves))
                last, cause = moves[-1]
                self._view = StateView(last, cause.value, self._clock.now(), None)
            return StateView(self._view.state, self._view.cause, self._view.since, next_change)

    def give(self, given: Input) -> StateView:
        """Put something into the machine that no stored fact tells, such as a prediction that is ready."""
        with self._changing:
            after = next_state(self._view.state, given)
            if after is not self._view.state:
                self._database.write(lambda transaction: self._apply(transaction, [(after, given)]))
                self._view = StateView(after, given.value, self._clock.now(), None)
            return self._view

    def heard(self, what: str) -> None:
        """The operator did something (SPEC 2.2)."""
        threshold = timedelta(milliseconds=self._settings.current.silence_threshold_ms)
        back = self.presence.silence() >= threshold
        self.presence.heard(what)
        if back and self.schedule.due(CARDS) <= self._clock.now():
            self.schedule.soon(CARDS)  # cards for who comes back, not ten minutes later
        if self._view.state in (State.PRIMING, State.AUTONOMOUS):
            self.evaluate()

    def silence(self) -> timedelta:
        """Time since the operator did anything."""
        return self.presence.silence()

    def operator_there(self) -> bool:
        """True while the silence is shorter than `silenceThresholdMs`, and nothing is stopped."""
        threshold = timedelta(milliseconds=self._settings.current.silence_threshold_ms)
        stopped = self._holds.ask(by_operator=True).verdict is not Verdict.ALLOW
        return self.silence() < threshold and not stopped

    def next_cycle(self) -> datetime | None:
        """When cards are made next by themselves; None while the operator is away or all is stopped."""
        return self.schedule.due(CARDS) if self.operator_there() else None

    def quiet(self) -> bool:
        """Quiet hours or do-not-disturb: cards are made, nothing executes by itself (SPEC 7.3)."""
        settings = self._settings.current
        dnd = self._dnd_until is not None and self._clock.now() < self._dnd_until
        return dnd or is_quiet(self._clock.local(), settings.quiet_hours_start, settings.quiet_hours_end)

    def dnd(self, span: timedelta | None) -> datetime | None:
        """Do not disturb for `span` from now; None ends it. Returns until when."""
        until = None if span is None else self._clock.now() + span
        self._database.write(lambda tx: stored.put(tx, DND_KEY, until.isoformat() if until else None))
        self._dnd_until = until
        return until

    def dnd_until(self) -> datetime | None:
        """When do-not-disturb ends; None when it is off."""
        until = self._dnd_until
        return until if until is not None and self._clock.now() < until else None

    def active_until(self, instant: datetime, span: timedelta) -> datetime:
        """When `span` has passed since `instant`, not counting quiet hours: how cards expire (SPEC 2.7)."""
        settings = self._settings.current
        zone = self._clock.local().tzinfo
        assert zone is not None
        return add_active(instant, span, zone, settings.quiet_hours_start, settings.quiet_hours_end)

    def _card_interval(self) -> timedelta:
        return timedelta(milliseconds=self._settings.current.card_cycle_ms)

    def _tick(self) -> None:
        self.evaluate()
        self._expire_due()

    def _facts(self) -> tuple[Facts, datetime | None]:
        settings = self._settings.current
        holds: Sequence[Hold] = self._holds.holds()
        words = frozenset(hold.word for hold in holds)
        # A pause stops only what runs by itself, so it is told apart from the levels that stop everything.
        killed = self._holds.ask(by_operator=True)
        enabled = killed.verdict is Verdict.ALLOW or killed.rule == "month"
        threshold = timedelta(milliseconds=settings.silence_threshold_ms)
        silence = self.presence.silence()
        pause = next((hold for hold in holds if hold.word == "pause"), None)
        until = pause.until if pause else None
        over = self._view.since + timedelta(hours=2) <= self._clock.now()
        next_change = until
        if not words and settings.autonomous_mode_enabled and silence < threshold:
            next_change = self.presence.last()[0] + threshold
        facts = Facts(
            enabled=enabled,
            holds=words,
            autonomous=settings.autonomous_mode_enabled,
            silence=silence,
            threshold=threshold,
            resumed=not over,
            paused_for_cost=pause is not None and pause.reason.startswith("cost"),
        )
        return facts, next_change

    def _apply(self, transaction: Transaction, moves: list[tuple[State, Input]]) -> None:
        before = self._view.state
        for after, cause in moves:
            transaction.record(StateChanged(before=before.value, after=after.value, cause=cause.value))
            before = after
        last, cause = moves[-1]
        stored.put(
            transaction,
            KEY,
            {"state": last.value, "cause": cause.value, "since": transaction.now.isoformat()},
        )
