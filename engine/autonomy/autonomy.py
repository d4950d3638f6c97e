"""The service of autonomy: its state, which follows from facts (SPEC 7.1), quiet hours (7.3), and the scheduled jobs.

Of the jobs, three are here: the card cycle (2.9), the autonomous cycle (7.2), and the update of the state with the
housekeeping of all services. The package says which state follows from which facts; this module reads the facts, stores
the state, and starts a cycle when it changes. `autonomous_runs` decides which card runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engine.autonomy import (
    TRANSITIONS,
    AutonomyFacts,
    AutonomyTrigger,
    OperatorPresence,
    Transition,
    compute_time_until_transition,
    find_next_trigger,
    find_transitions,
)
from engine.autonomy.autonomous_runs import AutonomousRuns, AutonomyRequirements, find_reason_not_to_start
from engine.autonomy.schedule import Schedule, ScheduledJob
from engine.clock import Clock, is_quiet
from engine.config.settings import SettingsSource
from engine.events.engine import SettingChanged, StateChanged
from engine.events.work import AutonomousCycleFinished
from engine.frozen import frozen
from engine.model import AutonomyState, Hold, HoldKind
from engine.safety.kill_switch import BY_COST_CAP, KillSwitch
from engine.storage import state as stored
from engine.storage.database import Database, Transaction

log = logging.getLogger(__name__)

STATE_KEY = "autonomy.state"
DND_KEY = "autonomy.dnd_until"
"""Keys in the state table."""

CARD_JOB, STATE_JOB, ACT_JOB = "cards", "state", "act"
"""The names of the jobs of this module."""

FIRST_START = "first start"
"""The cause of the state of a home in which no engine has run yet."""

STATE_INTERVAL = timedelta(seconds=30)
"""How often the state is brought up to date."""

MAX_CHECK_INTERVAL = timedelta(minutes=5)
"""How often workspaces are checked for signs of the operator while there is no input (SPEC 2.2); as often as
`silenceThresholdMs` when that is less."""

ACTING = (AutonomyState.PRIMING, AutonomyState.AUTONOMOUS)
"""The states in which the autonomous cycle runs."""


@frozen
class StateView:
    """The state of autonomy, and what led to it."""

    state: AutonomyState
    cause: str
    since: datetime | None
    """When it began; None before the first engine of a home."""
    next_change: datetime | None = None
    """When time alone may change it: at the end of a pause, or when the operator has been inactive for long enough and
    a look at the workspaces confirms that."""


class Autonomy:
    """The service `engine.autonomy`: the state machine of autonomy, and the scheduled jobs.

    `runs` makes cards and runs them. The functions of `housekeeping` are called every half minute: cards expire, next
    steps are made. `jobs` are other scheduled jobs. `last_operator_activity()` is when the operator was last active in
    the workspaces. It asks git, so only jobs call it.
    """

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        *,
        kill_switch: KillSwitch,
        runs: AutonomousRuns,
        housekeeping: Sequence[Callable[[], object]] = (),
        jobs: Sequence[ScheduledJob] = (),
        last_operator_activity: Callable[[], datetime | None] | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._kill_switch = kill_switch
        self._runs = runs
        self._housekeeping = housekeeping
        self._last_operator_activity = last_operator_activity
        self._checked_at: datetime | None = None
        self._transition_lock = threading.Lock()
        self.presence = OperatorPresence(database, clock)
        self.schedule = Schedule(database, clock, [*self._make_own_jobs(), *jobs])
        with database.read() as session:
            saved = stored.get(session, STATE_KEY)
            dnd = stored.get(session, DND_KEY)
        self._dnd_until = datetime.fromisoformat(dnd) if dnd else None
        self._is_stored = saved is not None
        """Whether the state was ever stored."""
        self._view = StateView(AutonomyState.DISABLED, FIRST_START, clock.now())
        if saved:
            since = datetime.fromisoformat(saved["since"])
            self._view = StateView(AutonomyState(saved["state"]), saved["cause"], since)

    def _make_own_jobs(self) -> list[ScheduledJob]:
        """The card cycle, the update of the state with housekeeping, and the autonomous cycle."""
        settings = self._settings
        return [
            ScheduledJob(
                CARD_JOB,
                lambda: timedelta(milliseconds=settings.current.card_cycle_ms),
                self._runs.run_check,
                self.is_operator_present,
            ),
            ScheduledJob(STATE_JOB, lambda: STATE_INTERVAL, self._update_and_keep_house, is_stored=False),
            ScheduledJob(
                ACT_JOB,
                lambda: timedelta(milliseconds=settings.current.autonomous_cycle_ms),
                self.run_autonomous_cycle,
                self._may_act,
            ),
        ]

    def start(self) -> None:
        """Bring the state up to date, and begin the schedule."""
        self.update_state()
        self.schedule.start()

    def close(self) -> None:
        """Stop the schedule."""
        self.schedule.close()

    def poke(self) -> None:
        """Evaluate the state soon, because something that it depends on has changed. Returns at once. Thread-safe."""
        self.schedule.run_soon(STATE_JOB)

    def update_state(self) -> StateView:
        """Make all transitions that follow from the present facts, and return the state after them. They are recorded,
        so do not call it inside a write."""
        with self._transition_lock:
            holds = self._kill_switch.list_holds()
            facts = self._apply_facts(holds)
            return replace(self._view, next_change=self._compute_next_change(facts, holds))

    def read_last_state(self) -> StateView:
        """The state that the last engine stored, which an engine that a single verb opened shows. A stop or pause that
        began or ended since then counts. If no engine has run in this home yet, it is the state with which the first
        would begin; this is not recorded."""
        facts = self._make_facts(self._kill_switch.list_holds())
        if not self._is_stored:
            transitions = find_transitions(self._view.state, facts)
            return StateView(transitions[-1].state if transitions else self._view.state, FIRST_START, None)
        trigger = find_next_trigger(self._view.state, facts)
        follows_from_presence = trigger in (AutonomyTrigger.SILENT, AutonomyTrigger.OPERATOR_SPOKE)
        return self._view if trigger is None or follows_from_presence else self.update_state()

    def _apply_facts(self, holds: Sequence[Hold]) -> AutonomyFacts:
        """Make all transitions that follow from the present facts, and return the facts. Call with the lock held."""
        facts = self._make_facts(holds)
        transitions = find_transitions(self._view.state, facts)
        if transitions:
            self._make_transitions(transitions)
            if self._view.state is AutonomyState.PRIMING:
                self.schedule.run_if_due(ACT_JOB)
        return facts

    def note_activity(self) -> None:
        """The operator did something (SPEC 2.2)."""
        has_returned = self.presence.measure_silence() >= self._get_silence_threshold()
        self.presence.note_now()
        if has_returned:
            self.schedule.run_if_due(CARD_JOB)  # cards at the operator's return, not ten minutes later
        if self._view.state in ACTING:
            self.update_state()

    def run_autonomous_cycle(self) -> AutonomousCycleFinished:
        """Run one autonomous cycle (SPEC 7.2) in this thread: predict, and run at most one card. The schedule calls it.
        The event at its end has the card that ran, and the reasons why others did not.

        The operator's activity is checked before predicting and again before running. The workspaces are checked, too,
        because an operator who works in an editor is not inactive (SPEC 2.2)."""
        finished = self._try_to_act()
        self._database.record(finished)
        return finished

    def _try_to_act(self) -> AutonomousCycleFinished:
        if (state := self._look_for_operator()) not in ACTING:
            return AutonomousCycleFinished(reason=f"not silent or not allowed: {state.value}")
        errors = self._runs.run_check()
        if (state := self._look_for_operator()) not in ACTING:
            return AutonomousCycleFinished(reason=f"somebody came while it predicted: {state.value}", errors=errors)
        finished = self._runs.start_first(lambda: self._look_for_operator() in ACTING)
        if finished.acted:
            with self._transition_lock:  # no stored fact says that a card began
                if after := TRANSITIONS.get((self._view.state, AutonomyTrigger.CARD_READY)):
                    self._make_transitions([Transition(after, AutonomyTrigger.CARD_READY)])
        return replace(finished, errors=errors)

    def _look_for_operator(self) -> AutonomyState:
        """Look for the operator's activity in the workspaces, too, and return the state after that. It asks git."""
        if self._last_operator_activity is not None:
            last_activity = self._last_operator_activity()
            if last_activity is not None:
                self.presence.note(last_activity)
            self._checked_at = self._clock.now()
        with self._transition_lock:
            self._apply_facts(self._kill_switch.list_holds())
            return self._view.state

    def describe_requirements(self, workspaces: Sequence[str]) -> AutonomyRequirements:
        """The requirements for cards in `workspaces` to run by themselves."""
        return self._runs.describe_requirements(workspaces)

    def find_reason_not_to_start(self, workspace: str) -> str:
        """Why nothing may start by itself in a workspace now, "" if it may."""
        settings = self._settings.current
        return find_reason_not_to_start(
            stopped=self._kill_switch.find_autonomous_obstacle(),
            autonomous=settings.autonomous_mode_enabled,
            autonomy=settings.get_workspace(workspace).autonomy,
            quiet=self.find_quiet_reason(),
        )

    def measure_silence(self) -> timedelta:
        """Time since the operator's last activity."""
        return self.presence.measure_silence()

    def is_operator_present(self) -> bool:
        """Whether the operator was active within `silenceThresholdMs`, and nothing is stopped."""
        return self.measure_silence() < self._get_silence_threshold() and not self._kill_switch.find_obstacle()

    def find_next_cycle(self) -> datetime | None:
        """When the next cycle runs, None if none will. While the operator is active it is a card cycle, otherwise an
        autonomous one."""
        if self.is_operator_present():
            return self.schedule.find_next_run(CARD_JOB)
        return self.schedule.find_next_run(ACT_JOB) if self._may_act() else None

    def find_quiet_reason(self) -> str:
        """Why it is quiet, so that cards are made, but none runs by itself (SPEC 7.3): "do not disturb" or "quiet
        hours"; "" if it is not."""
        if self.find_dnd_end() is not None:
            return "do not disturb"
        settings = self._settings.current
        is_quiet_hour = is_quiet(self._clock.local(), settings.quiet_hours_start, settings.quiet_hours_end)
        return "quiet hours" if is_quiet_hour else ""

    def set_dnd(self, span: timedelta | None) -> datetime | None:
        """Do not disturb for `span` from now; None ends it. Returns until when."""
        until = None if span is None else self._clock.now() + span
        text = until.isoformat() if until else None

        def remember() -> None:
            self._dnd_until = until

        def store(transaction: Transaction) -> None:
            stored.put(transaction, DND_KEY, text)
            transaction.record(SettingChanged(subject="dnd", value=text or "off"))
            transaction.after_commit(remember)

        self._database.write(store)
        return until

    def find_dnd_end(self) -> datetime | None:
        """When do-not-disturb ends; None when it is off."""
        until = self._dnd_until
        return until if until is not None and self._clock.now() < until else None

    def _get_silence_threshold(self) -> timedelta:
        return timedelta(milliseconds=self._settings.current.silence_threshold_ms)

    def _may_act(self) -> bool:
        return self._view.state in ACTING and not self._kill_switch.find_obstacle()

    def _update_and_keep_house(self) -> None:
        """Bring the state up to date, and do the housekeeping."""
        is_check_due = self._checked_at is None or self._clock.now() - self._checked_at >= self._get_check_interval()
        if self.presence.measure_silence() >= self._get_silence_threshold() and is_check_due:
            self._look_for_operator()
        else:
            self.update_state()
        for do_housekeeping in self._housekeeping:
            try:
                do_housekeeping()
            except Exception:  # the other functions must run all the same
                log.exception("a part of housekeeping failed; it comes again")

    def _get_check_interval(self) -> timedelta:
        """The time between two looks at the workspaces, at most the threshold in the settings."""
        return max(STATE_INTERVAL, min(MAX_CHECK_INTERVAL, self._get_silence_threshold()))

    def _compute_confirmed_silence(self) -> timedelta:
        """How long the operator has been inactive. From the threshold on, only the time up to the last look at the
        workspaces counts, because the operator may work in an editor since. While cards may run, all of it counts: a
        look confirmed it before, and the next one finds an operator who is back."""
        silence = self.presence.measure_silence()
        is_long = silence >= self._get_silence_threshold()
        if self._last_operator_activity is None or not is_long or self._view.state in ACTING:
            return silence
        if self._checked_at is None:
            return timedelta(0)
        last_activity = self.presence.read_last_activity()
        return min(silence, max(timedelta(0), self._checked_at - last_activity))

    def _make_facts(self, holds: Sequence[Hold]) -> AutonomyFacts:
        settings = self._settings.current
        # A pause only stops what runs by itself; the levels stop everything.
        verdict = self._kill_switch.decide_now(by_operator=True)
        pause = next((hold for hold in holds if hold.word is HoldKind.PAUSE), None)
        return AutonomyFacts(
            may_run=verdict.allows or verdict.rule == "month",
            holds=frozenset(hold.word for hold in holds),
            is_autonomous_mode_on=settings.autonomous_mode_enabled,
            silence=self._compute_confirmed_silence(),
            threshold=self._get_silence_threshold(),
            was_resumed=self._kill_switch.was_resumed_by_operator,
            is_paused_for_cost=pause is not None and pause.by == BY_COST_CAP,
        )

    def _compute_next_change(self, facts: AutonomyFacts, holds: Sequence[Hold]) -> datetime | None:
        """When the state changes by time alone, None for never."""
        now = self._clock.now()
        until = next((hold.until for hold in holds if hold.word is HoldKind.PAUSE), None)
        # All of the silence counts here; a look at the workspaces that must still confirm it is considered below.
        unconfirmed = replace(facts, silence=min(self.presence.measure_silence(), facts.threshold))
        span = compute_time_until_transition(self._view.state, unconfirmed, None if until is None else until - now)
        if span == timedelta(0) and self._checked_at is not None:
            # Silent long enough, but the workspaces were looked at before that: the next look decides.
            return max(self._checked_at + self._get_check_interval(), self.schedule.find_next_run(STATE_JOB))
        return None if span is None else now + span

    def _make_transitions(self, transitions: Sequence[Transition]) -> None:
        """Record these transitions, and store the last state."""
        last_state, last_cause = transitions[-1]

        def store(transaction: Transaction) -> None:
            before = self._view.state
            for after, cause in transitions:
                transaction.record(StateChanged(before=before.value, after=after.value, cause=cause.value))
                before = after
            since = transaction.now.isoformat()
            stored.put(transaction, STATE_KEY, {"state": last_state.value, "cause": last_cause.value, "since": since})

        self._database.write(store)
        self._view = StateView(last_state, last_cause.value, self._clock.now())
        self._is_stored = True
