"""Simulates days in a temporary home, and reports on them, for `clawpy simulate`.

One thread advances the fake clock from one action of the operator or one due job to the next. Sessions take no time. A
real engine runs its jobs in threads. Here the loop polls `Schedule.find_next_run` every `POLL_EVERY` and calls
`Schedule.run` itself, so that the result does not depend on which thread is faster. Nothing in the report depends on
the machine or its clock.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from engine.autonomy.autonomy import ACT_JOB, CARD_JOB, STATE_JOB
from engine.engine import Engine
from engine.frozen import group_pairs
from engine.git.environment import get_temporary_folder
from engine.model import (
    Card,
    DecidedBy,
    Hold,
    Outcome,
    RailDecision,
    Refusal,
    SessionState,
    SessionView,
    Source,
    Status,
)
from engine.safety.pipeline import RAIL_ORDER
from engine.simulation.operator import (
    Oddity,
    OperatorAction,
    PlannedDay,
    SimulatedOperator,
    deal_oddities,
    plan_day,
)
from engine.simulation.world import FIRST_DAY, HANG_TIMEOUT_S, SimulatedWorld, open_world
from engine.wording import to_dollars

MAX_DAYS = 366
"""Maximum number of days that are simulated."""

NO_LIMIT = 1_000_000
"""More cards, entries and sessions than there are."""

POLL_EVERY, POLL_EVERY_WHILE_AWAY = timedelta(minutes=10), timedelta(hours=1)
"""How often due jobs are run while the operator is present, and while away. In a real engine it is every 30 seconds."""

POLL_EVERY_IN_CHATTER, CHATTER_SPAN = timedelta(minutes=2), timedelta(minutes=5)
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
        observed = _run_in_thread(_SimulatedDays(world, seed), days)
        return _make_document(world.engine, observed, days=days, seed=seed)


def _run_in_thread(simulation: _SimulatedDays, days: int) -> Observations:
    """Simulate `days` days in another thread, because the main thread handles Ctrl-C. On Ctrl-C the simulation is
    cancelled, and its thread ends before this function returns."""
    with ThreadPoolExecutor(1, "clawpy-simulation") as executor:
        try:
            return executor.submit(simulation.run, days).result()
        except BaseException:
            simulation.is_cancelled = True
            raise


# -- the loop


@dataclass
class Observations:
    """Figures that the engine itself does not record."""

    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Hours spent in each state of autonomy."""
    phases: list[tuple[int, datetime]] = field(default_factory=list)
    """(phase, when it began)."""
    jobs: Counter[str] = field(default_factory=Counter)
    """The number of runs of each job."""
    oddities: dict[int, Oddity] = field(default_factory=dict)
    """The oddity of each day that has one, by the number of the day."""
    peaks: dict[str, int] = field(default_factory=lambda: {"hour": 0, "day": 0, "month": 0})
    """The highest cost in each window, in micro-dollars."""
    holds: list[tuple[datetime, Hold]] = field(default_factory=list)
    """The stops and pauses, and when each was first seen, in this order."""


class _SimulatedDays:
    """Simulates a number of days. `run` may be called once."""

    def __init__(self, world: SimulatedWorld, seed: int) -> None:
        self._engine = world.engine
        self._clock = world.clock
        self._runner = world.runner
        random_source = random.Random(f"{seed}/operator")
        self._operator = SimulatedOperator(world.engine, world.projects, random_source, self._finish_sessions)
        self._chatty_until = world.clock.now()
        self._events_when_idle = -1
        """How many events were recorded when last no session was running. If no more are, no session has begun."""
        self._random_source = random.Random(f"{seed}/days")
        self._oddities = deal_oddities(self._random_source)
        self._last_holds: set[str] = set()
        self._state = world.engine.autonomy.update_state().state.value
        self._day = PlannedDay(0, world.clock.now())
        self._observed = Observations()
        self.is_cancelled = False
        """Set by another thread to make `run` raise `CancelledError` at its next event."""

    def run(self, days: int) -> Observations:
        """Simulate this many days; returns the observations."""
        begin = self._clock.now()
        for number in range(days):
            self._simulate_day(plan_day(number, begin + timedelta(days=number), self._oddities, self._random_source))
        self._advance_to(begin + timedelta(days=days, minutes=-1))
        return self._observed

    def _simulate_day(self, day: PlannedDay) -> None:
        self._day = day
        if day.oddity is not None:
            self._observed.oddities[day.number] = day.oddity
        self._runner.price_factor = 7.0 if day.oddity is Oddity.SPREE else 1.0
        self._runner.is_chatty = day.oddity is Oddity.CHATTY
        for at, action in day.moments:
            self._advance_to(at)
            self._act(action)
            self._run_due_jobs()
        phases, phase = self._observed.phases, self._engine.embedded_twin.read_phase().number
        if not phases or phases[-1][0] != phase:
            phases.append((phase, self._clock.now()))

    def _act(self, action: OperatorAction) -> None:
        engine = self._engine
        if action is OperatorAction.ARRIVE:
            self._operator.arrive()
        elif action is OperatorAction.WORK:
            if self._day.oddity is Oddity.CHATTY:
                self._trigger_cards_as_programs()
            self._operator.work(self._day.oddity)
        elif action is OperatorAction.STOP:
            engine.safety.kill_switch.stop("F12", "console")
            self._finish_sessions()
            self._operator.decide_cards(self._day.oddity)
        elif action is OperatorAction.RESUME:
            self._resume("stop")
            if self._random_source.random() < 0.5:
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
            span = min(target, now + self._compute_next_poll(now)) - now
            self._observed.hours[self._state] += span.total_seconds() / 3600
            self._clock.advance(span)
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
            if name == STATE_JOB or schedule.find_next_run(name) <= self._clock.now():
                self._observed.jobs[name] += schedule.run(name)
                self._finish_sessions()
        self._state = self._engine.autonomy.update_state().state.value
        holds, now = self._engine.safety.kill_switch.list_holds(), self._clock.now()
        self._observed.holds += [(now, hold) for hold in holds if hold.word not in self._last_holds]
        self._last_holds = {hold.word for hold in holds}

    def _finish_sessions(self) -> None:
        """Let all running sessions end, and those that follow from them."""
        if self._engine.database.ledger_commits == self._events_when_idle:
            return
        sessions, has_begun = self._engine.sessions, False
        self._runner.gate.set()
        # First the queued ones: one that starts between the two questions is found by the second.
        while waiting := sessions.store.load_rows(state=SessionState.QUEUED) or sessions.store.load_rows(
            state=SessionState.RUNNING
        ):
            has_begun = True
            if not sessions.wait(waiting[0].id, HANG_TIMEOUT_S).state.is_over:
                raise RuntimeError(f"the simulation hangs: {waiting[0].id}")
        self._runner.gate.clear()
        self._events_when_idle = self._engine.database.ledger_commits
        if has_begun:
            self._note_peaks()
            if self._runner.is_chatty:  # the next steps of the session follow soon
                self._chatty_until = self._clock.now() + CHATTER_SPAN

    def _note_peaks(self) -> None:
        """Keep the highest cost in each window."""
        cost, peaks = self._engine.safety.costs.read_state(), self._observed.peaks
        for window, highest in peaks.items():
            peaks[window] = max(getattr(cost, window), highest)


# -- the report


def _make_document(engine: Engine, observed: Observations, *, days: int, seed: int) -> dict[str, Any]:
    """The report on all simulated days. Money is in dollars, and times are in ISO format."""
    cards = engine.cards.list_recent(NO_LIMIT)
    log = engine.safety.read_log(NO_LIMIT)[::-1]
    sessions = engine.sessions.list_newest(limit=NO_LIMIT)
    blocked = [_describe_blocked(entry) for entry in log if entry.blocked]
    return {
        "days": days,
        "seed": seed,
        "from": FIRST_DAY.isoformat(),
        "real": REAL,
        "madeUp": list(SIMULATED),
        "cards": _count_cards(cards),
        "kinds": _list_kinds(cards),
        "rails": [_describe_rail(name, blocked) for name in RAIL_ORDER],
        "states": {state: round(hours, 2) for state, hours in sorted(observed.hours.items())},
        "cycles": {name: observed.jobs[name] for name in ("cards", "act")},
        "phases": [{"phase": number, "at": at.isoformat()} for number, at in observed.phases],
        "holds": [{"at": at.isoformat(), "word": hold.word, "reason": hold.reason} for at, hold in observed.holds],
        "cost": {
            "total": to_dollars(sum(view.cost for view in sessions)),
            "peaks": {window: to_dollars(amount) for window, amount in observed.peaks.items()},
            "caps": {window: to_dollars(cap) for window, cap in engine.safety.costs.read_state().caps.items()},
        },
        "perDay": [_describe_day(number, cards, log, sessions, observed) for number in range(days)],
        "blocked": blocked,
    }


def _count_cards(cards: Sequence[Card]) -> dict[str, int]:
    statuses = Counter(card.status for card in cards)
    approved = [card for card in cards if card.decided_by is DecidedBy.OPERATOR and card.status is not Status.DISMISSED]
    return {
        "made": len(cards),
        "approved": len(approved),
        "approvedOwnPrompts": sum(card.source is Source.OPERATOR for card in approved),
        "dismissed": statuses[Status.DISMISSED],
        "expired": sum(card.status is Status.EXPIRED and card.outcome is not Outcome.WITHDRAWN for card in cards),
        "withdrawn": sum(card.outcome is Outcome.WITHDRAWN for card in cards),
        "executed": statuses[Status.EXECUTED],
        "executedByAutonomy": sum(card.decided_by is DecidedBy.AUTONOMY for card in cards),
        "followUps": sum(card.source is Source.FOLLOW_UP for card in cards),
        "pending": statuses[Status.PENDING],
    }


def _list_kinds(cards: Sequence[Card]) -> list[dict[str, Any]]:
    """The operator's decisions on each kind of predicted card, and the confidence that was stated last, None if none
    was. The newest of `cards` comes first."""
    kinds = group_pairs((card.kind, card) for card in cards if card.source is not Source.OPERATOR)
    rows = []
    for kind, cards_of_kind in sorted(kinds.items()):
        statuses = Counter(card.status for card in cards_of_kind if card.decided_by is DecidedBy.OPERATOR)
        stated = next((round(card.confidence, 3) for card in cards_of_kind if card.has_stated_confidence), None)
        dismissed = statuses[Status.DISMISSED]
        rows.append(
            {"kind": kind, "approved": statuses.total() - dismissed, "dismissed": dismissed, "confidence": stated}
        )
    return rows


def _describe_rail(name: str, blocked: Sequence[dict[str, str]]) -> dict[str, Any]:
    """How often this rail was the first to object, with one example."""
    of_rail = [entry for entry in blocked if entry["rail"] == name]
    return {"rail": name, "blocked": len(of_rail), "example": next(iter(of_rail), None)}


def _describe_blocked(entry: RailDecision) -> dict[str, str]:
    """A blocked entry of the log, with the rail that decided it."""
    objection = next(verdict for verdict in entry.verdicts if not verdict.allows)
    return {
        "at": entry.at.isoformat(),
        "rail": objection.rail,
        "reason": objection.reason,
        "by": entry.decided_by,
        "prompt": entry.prompt,
    }


def _describe_day(
    number: int,
    cards: Sequence[Card],
    log: Sequence[RailDecision],
    sessions: Sequence[SessionView],
    observed: Observations,
) -> dict[str, Any]:
    """The figures of the day with this number, from 0."""
    start = FIRST_DAY + timedelta(days=number)
    end = start + timedelta(days=1)

    def within(at: datetime | None) -> bool:
        return at is not None and start <= at < end

    passed = Counter(entry.decided_by for entry in log if not entry.blocked and within(entry.at))
    return {
        "day": number + 1,
        "odd": observed.oddities.get(number, ""),
        "made": sum(within(card.created_at) for card in cards),
        "approved": passed[DecidedBy.OPERATOR.value],
        "dismissed": sum(card.status is Status.DISMISSED and within(card.decided_at) for card in cards),
        "byAutonomy": passed[DecidedBy.AUTONOMY.value],
        "blocked": sum(entry.blocked and within(entry.at) for entry in log),
        "cost": to_dollars(sum(view.cost for view in sessions if within(view.ended_at))),
    }
