"""The simulation loop: one thread that advances the fake clock from one event to the next.

An event is an action of the operator, a job that is due, or the lid of the laptop being closed or opened. Sessions take
no time. A real engine runs its jobs in threads. Here the loop polls `Schedule.next_run_of` every `POLL_EVERY` and calls
`Schedule.run` itself, so that the result does not depend on which thread is faster.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engine.autonomy.autonomy import ACT_JOB, CARD_JOB, STATE_JOB
from engine.hierarchy.teaching import run_round
from engine.model import Hold, Refusal, SessionState, Source
from engine.simulation.operator import (
    Day,
    Oddity,
    OperatorAction,
    SimulatedOperator,
    deal_oddities,
    plan_day,
)
from engine.simulation.world import HANG_TIMEOUT_S, NEXT_STEPS, STEPS_ELSEWHERE, SimulatedWorld

POLL_EVERY, POLL_EVERY_WHILE_AWAY = timedelta(minutes=10), timedelta(minutes=30)
"""How often due jobs are run while the operator is present, and while away. In a real engine it is every 30 seconds."""

POLL_EVERY_IN_HASTE = timedelta(minutes=2)
"""How often due jobs are run in the hasty hours of a hasty day, and after sessions on a chatty day."""

CHATTER = timedelta(minutes=5)
"""How long after each session of a chatty day due jobs are run more often."""

HASTY_FROM, HASTY_UNTIL = 10, 11
"""The hasty hours of a hasty day: from 10 up to, but not including, 11 o'clock."""


@dataclass
class Observations:
    """Figures that the engine itself does not record."""

    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Hours spent in each state of autonomy."""
    asleep: timedelta = timedelta(0)
    """How long the lid was closed."""
    phases: list[tuple[int, datetime]] = field(default_factory=list)
    """(phase, when it began)."""
    jobs: Counter[str] = field(default_factory=Counter)
    """The number of runs of each job."""
    odd: list[tuple[int, str]] = field(default_factory=list)
    """(number of the day, its oddity)."""
    peak: dict[str, int] = field(default_factory=lambda: {"hour": 0, "day": 0, "month": 0})
    """The highest cost in each window, in micro-dollars."""
    holds: list[tuple[datetime, Hold]] = field(default_factory=list)
    """The stops and pauses, and when each was first seen, in this order."""


class SimulatedMonth:
    """Simulates a number of days. `run` may be called once."""

    def __init__(self, world: SimulatedWorld, seed: int) -> None:
        self._engine = world.engine
        self._clock = world.clock
        self._runner = world.runner
        chance = random.Random(f"{seed}/operator")
        self._operator = SimulatedOperator(world.engine, world.projects, chance, self._finish_sessions)
        self._busy_until = world.clock.now()
        self._events_when_idle = -1
        """How many events were recorded when last no session was running. If no more are, no session has begun."""
        self._chance = random.Random(f"{seed}/days")
        self._oddities = deal_oddities(self._chance)
        self._last_holds: set[str] = set()
        self._settings: dict[str, object] = {"autonomousModeEnabled": True, "autonomousCycleMs": 1_800_000}
        self._state = world.engine.autonomy.update_state().state.value
        self._day = Day(0, world.clock.now())
        self._cancelled = False
        self.observed = Observations()

    def cancel(self) -> None:
        """Make `run` raise `CancelledError` at its next event. Thread-safe."""
        self._cancelled = True

    def run(self, days: int) -> Observations:
        """Simulate this many days; returns the observations."""
        begin = self._clock.now()
        for number in range(days):
            self._simulate_day(plan_day(number, begin + timedelta(days=number), self._oddities, self._chance))
        self._advance_to(begin + timedelta(days=days, minutes=-1))
        return self.observed

    # -- a day

    def _simulate_day(self, day: Day) -> None:
        self._day = day
        self.observed.odd += [(day.number, odd.value) for odd in sorted(day.odd)]
        self._runner.price_factor = 7.0 if day.odd & {Oddity.DEAR, Oddity.SPREE} else 1.0
        self._runner.chatty = bool(day.odd & {Oddity.CHATTY, Oddity.LEADS})
        self._runner.next_steps = STEPS_ELSEWHERE if Oddity.LEADS in day.odd else NEXT_STEPS
        self._change_setting("autonomousModeEnabled", Oddity.OFF not in day.odd)
        for at, action in sorted([*self._find_sleeps(day), *day.moments], key=lambda event: event[0]):
            self._advance_to(at)
            if isinstance(action, datetime):
                self._sleep(action)
            else:
                self._act(action)
                self._run_due_jobs()
        engine, phases = self._engine, self.observed.phases
        phase = engine.embedded_twin.read_phase().number
        if not phases or phases[-1][0] != phase:
            phases.append((phase, self._clock.now()))
        run_round(engine.bubbles, engine.guided_sessions, engine.teaching)

    def _find_sleeps(self, day: Day) -> Iterator[tuple[datetime, datetime | OperatorAction]]:
        """(when the lid is closed, when it is opened again). It is not closed while the operator works."""
        for shut, opened in day.asleep:
            if not any(shut <= at < opened for at, _ in day.moments):
                yield shut, opened

    def _act(self, action: OperatorAction) -> None:
        engine, odd = self._engine, self._day.odd
        if action is OperatorAction.ARRIVE:
            self._operator.arrive()
        elif action is OperatorAction.WORK:
            if Oddity.CHATTY in odd:
                self._trigger_cards_as_programs()
            self._operator.work(odd)
        elif action is OperatorAction.LEAVE and Oddity.DND in odd:
            engine.autonomy.set_dnd(timedelta(hours=2))
        elif action is OperatorAction.STOP:
            engine.safety.kill_switch.stop("F12", "console")
            self._finish_sessions()
            self._operator.decide_cards(odd)
        elif action is OperatorAction.RESUME:
            self._resume("stop")
            if self._chance.random() < 0.5:
                self._resume("month")

    def _trigger_cards_as_programs(self) -> None:
        """Trigger the pending cards as programs do. When refused, try again at once, as an agent in a loop would."""
        cards = [card for card in self._engine.cards.list_pending() if card.source is not Source.OPERATOR]
        for card in cards:
            for _ in range(3):
                try:
                    self._engine.cards.trigger(card.id, by="gateway")
                    break
                except Refusal:
                    continue  # the log says which rail it was

    def _resume(self, word: str) -> None:
        try:
            self._engine.safety.kill_switch.resume(word)
        except Refusal as refusal:
            if refusal.code != "not_held":
                raise

    # -- time

    def _advance_to(self, target: datetime) -> None:
        """Advance the clock to `target`, and run the jobs that become due on the way."""
        while (now := self._clock.now()) < target:
            if self._cancelled:
                raise CancelledError
            self._advance_awake(min(target, now + self._compute_next_poll(now)))
            self._run_due_jobs()

    def _compute_next_poll(self, now: datetime) -> timedelta:
        hasty = Oddity.HASTY in self._day.odd and HASTY_FROM <= now.hour < HASTY_UNTIL
        self._change_setting("autonomousCycleMs", 120_000 if hasty else 1_800_000)
        if hasty or now < self._busy_until:
            return POLL_EVERY_IN_HASTE
        return POLL_EVERY if self._engine.autonomy.is_operator_present() else POLL_EVERY_WHILE_AWAY

    def _advance_awake(self, until: datetime) -> None:
        span = until - self._clock.now()
        if span > timedelta(0):
            self.observed.hours[self._state] += span.total_seconds() / 3600
            self._clock.advance(span)

    def _sleep(self, until: datetime) -> None:
        """Keep the lid closed until `until`, so that nothing happens; then run each job that is due once."""
        if until > self._clock.now():
            self.observed.asleep += until - self._clock.now()
            self._clock.advance(until - self._clock.now())
        self._run_due_jobs()

    def _run_due_jobs(self) -> None:
        """Run the jobs that are due, in the place of the threads of a real engine."""
        schedule = self._engine.autonomy.schedule
        self._engine.safety.kill_switch.poll()
        self._finish_sessions()
        for name in (STATE_JOB, CARD_JOB, ACT_JOB):
            if name == STATE_JOB or schedule.next_run_of(name) <= self._clock.now():
                self.observed.jobs[name] += schedule.run(name)
                self._finish_sessions()
        self._state = self._engine.autonomy.update_state().state.value
        self._note_holds()

    def _finish_sessions(self) -> None:
        """Let all running sessions end, and those that follow from them."""
        if self._engine.database.recorded == self._events_when_idle:
            return
        sessions, begun = self._engine.sessions, False
        self._runner.gate.set()
        # First the queued ones: one that starts between the two questions is found by the second.
        while waiting := sessions.store.load_rows(state=SessionState.QUEUED) or sessions.store.load_rows(
            state=SessionState.RUNNING
        ):
            begun = True
            if not sessions.wait(waiting[0].id, HANG_TIMEOUT_S).state.over:
                raise RuntimeError(f"the simulation hangs: {waiting[0].id}")
        self._runner.gate.clear()
        self._events_when_idle = self._engine.database.recorded
        if begun:
            cost, peak = self._engine.safety.costs.state(), self.observed.peak
            peak |= {window: max(getattr(cost, window), highest) for window, highest in peak.items()}
            self._engine.learnings.catch_up()
            if self._runner.chatty:  # the next steps of the session follow soon
                self._busy_until = self._clock.now() + CHATTER

    # -- observations

    def _note_holds(self) -> None:
        holds, now = self._engine.safety.kill_switch.holds(), self._clock.now()
        self.observed.holds += [(now, hold) for hold in holds if hold.word not in self._last_holds]
        self._last_holds = {hold.word for hold in holds}

    def _change_setting(self, key: str, value: object) -> None:
        if self._settings.get(key) != value:
            self._settings[key] = value
            self._engine.settings.set(key, value)
