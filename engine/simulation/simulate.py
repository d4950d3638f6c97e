"""Simulates days in a temporary home, and reports on them, for `clawpy simulate`.

One thread advances the fake clock from one action of the operator or one due job to the next. Sessions take no time. A
real engine runs its jobs in threads. Here the loop polls `Schedule.next_run_of` every `POLL_EVERY` and calls
`Schedule.run` itself, so that the result does not depend on which thread is faster. Nothing in the report depends on
the machine or its clock.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.autonomy.autonomy import ACT_JOB, CARD_JOB, STATE_JOB
from engine.engine import Engine
from engine.git.environment import get_temporary_folder
from engine.model import (
    Card,
    DecidedBy,
    Hold,
    LogEntry,
    Outcome,
    Refusal,
    SessionState,
    Source,
    Status,
    dollars,
)
from engine.safety.pipeline import RAIL_ORDER
from engine.simulation.operator import (
    Day,
    Oddity,
    OperatorAction,
    SimulatedOperator,
    deal_oddities,
    plan_day,
)
from engine.simulation.world import FIRST_DAY, HANG_TIMEOUT_S, SimulatedWorld, open_world

MAX_DAYS = 366
"""Maximum number of days that are simulated."""

NO_LIMIT = 1_000_000
"""More cards, entries and sessions than there are."""

POLL_EVERY, POLL_EVERY_WHILE_AWAY = timedelta(minutes=10), timedelta(hours=1)
"""How often due jobs are run while the operator is present, and while away. In a real engine it is every 30 seconds."""

POLL_EVERY_IN_CHATTER, CHATTER = timedelta(minutes=2), timedelta(minutes=5)
"""How often due jobs are run after each session of a chatty day, and for how long."""

SIMULATED = (
    "the clock, chance, and the operator",
    "what collectors find in a made-up project called shop",
    "the runner: it accepts everything, does nothing, and costs something",
    "the sandbox: it only claims to confine",
)

REAL = "database, rails, permits, cards, Twin, state machine, schedule decisions, quiet hours, costs"


def simulate(days: int = 30, seed: int = 1) -> dict[str, Any]:
    """Simulate `days` days (1 to 366) with `seed`. The same arguments give the same document. Raises `Refusal`
    `bad_days`."""
    if not 1 <= days <= MAX_DAYS:
        raise Refusal("bad_days", f"{days} days cannot be simulated", f"choose 1 to {MAX_DAYS}, for example --days 30")
    with (
        tempfile.TemporaryDirectory(prefix="clawpy-simulate-", dir=get_temporary_folder()) as folder,
        open_world(Path(folder), seed) as world,
    ):
        simulation = _SimulatedDays(world, seed)
        _run_in_thread(simulation, days)
        return _make_document(world.engine, simulation, days=days, seed=seed)


def _run_in_thread(simulation: _SimulatedDays, days: int) -> None:
    """Simulate `days` days in another thread, because the main thread handles Ctrl-C. On Ctrl-C the simulation is
    cancelled, and its thread ends before this function returns."""
    with ThreadPoolExecutor(1, "clawpy-simulation") as executor:
        try:
            executor.submit(simulation.run, days).result()
        except BaseException:
            simulation.is_cancelled = True
            raise


# -- the loop


class _SimulatedDays:
    """Simulates a number of days. `run` may be called once."""

    def __init__(self, world: SimulatedWorld, seed: int) -> None:
        self._engine = world.engine
        self._clock = world.clock
        self._runner = world.runner
        chance = random.Random(f"{seed}/operator")
        self._operator = SimulatedOperator(world.engine, world.projects, chance)
        self._chatty_until = world.clock.now()
        self._events_when_idle = -1
        """How many events were recorded when last no session was running. If no more are, no session has begun."""
        self._chance = random.Random(f"{seed}/days")
        self._oddities = deal_oddities(self._chance)
        self._last_holds: set[str] = set()
        world.engine.autonomy.update_state()
        self._day = Day()
        self.peak = {"hour": 0, "day": 0, "month": 0}
        """The highest cost in each window so far, in micro-dollars."""
        self.holds: list[tuple[datetime, Hold]] = []
        """The stops and pauses so far, and when each was first seen, in this order."""
        self.is_cancelled = False
        """Set by another thread to make `run` raise `CancelledError` at its next event."""

    def run(self, days: int) -> None:
        """Simulate this many days."""
        begin = self._clock.now()
        for number in range(days):
            self._simulate_day(plan_day(number, begin + timedelta(days=number), self._oddities, self._chance))
        self._advance_to(begin + timedelta(days=days, minutes=-1))

    def _simulate_day(self, day: Day) -> None:
        self._day = day
        self._runner.price_factor = 7.0 if day.oddity is Oddity.SPREE else 1.0
        self._runner.chatty = day.oddity is Oddity.CHATTY
        for at, action in day.moments:
            self._advance_to(at)
            self._act(action)
            self._run_due_jobs()

    def _act(self, action: OperatorAction) -> None:
        engine = self._engine
        if action is OperatorAction.WORK:
            if self._day.oddity is Oddity.CHATTY:
                self._trigger_cards_as_programs()
            self._operator.work(self._day.oddity)
        elif action is OperatorAction.STOP:
            engine.safety.kill_switch.stop("F12", "console")
            self._finish_sessions()
            self._operator.decide_cards(self._day.oddity)
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

    def _advance_to(self, target: datetime) -> None:
        """Advance the clock to `target`, and run the jobs that become due on the way."""
        while (now := self._clock.now()) < target:
            if self.is_cancelled:
                raise CancelledError
            self._clock.advance(min(target, now + self._compute_next_poll(now)) - now)
            self._run_due_jobs()

    def _compute_next_poll(self, now: datetime) -> timedelta:
        if now < self._chatty_until:
            return POLL_EVERY_IN_CHATTER
        return POLL_EVERY if self._engine.autonomy.is_operator_present() else POLL_EVERY_WHILE_AWAY

    def _run_due_jobs(self) -> None:
        """Run the jobs that are due, in the place of the threads of a real engine."""
        schedule = self._engine.autonomy.schedule
        self._engine.safety.kill_switch.poll()
        self._finish_sessions()
        for name in (STATE_JOB, CARD_JOB, ACT_JOB):
            if name == STATE_JOB or schedule.next_run_of(name) <= self._clock.now():
                schedule.run(name)
                self._finish_sessions()
        self._engine.autonomy.update_state()
        holds, now = self._engine.safety.kill_switch.holds(), self._clock.now()
        self.holds += [(now, hold) for hold in holds if hold.word not in self._last_holds]
        self._last_holds = {hold.word for hold in holds}

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
            cost, peak = self._engine.safety.costs.state(), self.peak
            peak |= {window: max(getattr(cost, window), highest) for window, highest in peak.items()}
            if self._runner.chatty:  # the next steps of the session follow soon
                self._chatty_until = self._clock.now() + CHATTER


# -- the report


def _make_document(engine: Engine, simulation: _SimulatedDays, *, days: int, seed: int) -> dict[str, Any]:
    """The report on all simulated days. Money is in dollars, and times are in ISO format."""
    cards = engine.cards.list_recent(NO_LIMIT)
    sessions = engine.sessions.list_newest(limit=NO_LIMIT)
    blocked = [_describe_blocked(entry) for entry in engine.safety.log(NO_LIMIT, blocked_only=True)[::-1]]
    return {
        "days": days,
        "seed": seed,
        "from": FIRST_DAY.isoformat(),
        "real": REAL,
        "madeUp": list(SIMULATED),
        "cards": _count_cards(cards),
        "rails": [_describe_rail(name, blocked) for name in RAIL_ORDER],
        "holds": [{"at": at.isoformat(), "word": hold.word, "reason": hold.reason} for at, hold in simulation.holds],
        "cost": {
            "total": dollars(sum(view.cost for view in sessions)),
            "peaks": {window: dollars(amount) for window, amount in simulation.peak.items()},
            "caps": {window: dollars(cap) for window, cap in engine.safety.costs.state().caps.items()},
        },
        "blocked": blocked,
    }


def _count_cards(cards: Sequence[Card]) -> dict[str, int]:
    statuses = Counter(card.status for card in cards)
    return {
        "made": len(cards),
        "approved": sum(
            card.decided_by is DecidedBy.OPERATOR and card.status is not Status.DISMISSED for card in cards
        ),
        "dismissed": statuses[Status.DISMISSED],
        "expired": sum(card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN for card in cards),
        "withdrawn": sum(card.outcome is Outcome.WITHDRAWN for card in cards),
        "executed": statuses[Status.EXECUTED],
        "executedByAutonomy": sum(card.decided_by is DecidedBy.AUTONOMY for card in cards),
        "followUps": sum(card.source is Source.FOLLOW_UP for card in cards),
        "pending": statuses[Status.PENDING],
    }


def _describe_rail(name: str, blocked: Sequence[dict[str, str]]) -> dict[str, Any]:
    """How often this rail was the first to object, with one example."""
    first = [entry for entry in blocked if entry["rail"] == name]
    return {"rail": name, "blocked": len(first), "example": next(iter(first), None)}


def _describe_blocked(entry: LogEntry) -> dict[str, str]:
    """A blocked entry of the log, with the rail that decided it."""
    first = next(verdict for verdict in entry.verdicts if not verdict.allows)
    return {
        "at": entry.at.isoformat(),
        "rail": first.rail,
        "reason": first.reason,
        "by": entry.decided_by,
        "prompt": entry.prompt,
    }
