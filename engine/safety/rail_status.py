"""The state of the rails, for display: nothing here decides or writes (SPEC 9.1).

Each rail's own function judges a sample trigger without approval that breaks no other rule, so that
what is shown and what decides cannot drift apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from sqlmodel import Session, col, desc, func, select

from engine.clock import Clock
from engine.config import Autonomy
from engine.model import (
    MICRO,
    Assignment,
    ChainStep,
    DecidedBy,
    RailState,
    RailVerdict,
    Trigger,
    TriggerType,
    Verdict,
    microusd,
)
from engine.model.text import count
from engine.safety import cost, gate, loops, rates
from engine.safety.pipeline import LOOPS_KEY, ORDER, Allowance, CrosspollLog, Pipeline, last_unattended
from engine.storage import state
from engine.storage.database import Database

COUNTED_WITHIN = timedelta(hours=24)
"""Stopped decisions of this long are counted."""
MAX_COUNTED = 2000
"""Counting stops here."""

GATE_BRIEF = {
    "rejections": "rejected", "day-cost": "day 80 %", "onboarding": "first 10", "autonomy-off": "asks you",
    "workspace": "asks you", "no-sandbox": "no sandbox", "quiet": "quiet",
}  # fmt: skip
KILL_BRIEF = {"stop-file": "stop", "config": "off", "api": "api off"}

SAMPLE_TRIGGER = Trigger(
    prediction_id="",
    type=TriggerType.AUTONOMOUS,
    assignment=Assignment("", "", "", ""),
    agent="",
    confidence=1.0,
    estimate=0,
    decided_by=DecidedBy.AUTONOMY,
    phase=1,
    approval_bound=1.0,
)
"""Work by the engine itself, with nothing against it."""


class RailStatus:
    """Reads the state of one home's rails. Every method takes a millisecond or two and changes nothing."""

    def __init__(self, database: Database, clock: Clock, pipeline: Pipeline) -> None:
        self._database = database
        self._clock = clock
        self._pipeline = pipeline
        self._settings = pipeline.settings
        self._costs = pipeline.costs
        self._kill_switch = pipeline.kill_switch

    def rails(self) -> tuple[RailState, ...]:
        """Every rail in the pipeline's order."""
        now = self._clock.now()
        with self._database.read() as session:
            states = (
                self._loop(session, now),
                self._rate(session, now),
                self._cost(session),
                self._content(session),
                self._gate(session),
                self._kill(),
            )
            newest = session.exec(
                select(CrosspollLog.created_at, CrosspollLog.verdicts).order_by(desc(col(CrosspollLog.id))).limit(1)
            ).first()
            stopped = _stopped(session, now - COUNTED_WITHIN)
        at, verdicts = newest if newest is not None else (None, ())
        last = {verdict.rail: verdict for verdict in verdicts}
        return tuple(
            replace(
                state,
                last=last.get(state.rail),
                last_at=at if state.rail in last else None,
                stopped=stopped.get(state.rail, 0),
            )
            for state in states
        )

    def chain(self, limit: int = 20) -> list[ChainStep]:
        """The newest links of the loop detector first, each with what counts of it now."""
        now = self._clock.now()
        with self._database.read() as session:
            links = [link for link in loops.recent_links(session, now) if link.ran]
        steps = []
        for index in range(len(links) - 1, max(-1, len(links) - 1 - limit), -1):
            link = links[index]
            links_so_far = [earlier for earlier in links[: index + 1] if earlier.workspace == link.workspace]
            pair = (link.from_channel, link.to_channel)
            counted = link.from_channel != loops.OWNER
            run_count = sum(
                (earlier.from_channel, earlier.to_channel) == pair and now - earlier.at < loops.PAIR_WINDOW
                for earlier in links_so_far
            )
            until = link.at + loops.REVERSE_WINDOW
            steps.append(
                ChainStep(
                    link.from_channel,
                    link.to_channel,
                    link.prediction_id,
                    link.workspace,
                    link.at,
                    depth=loops.chain_depth(links_so_far, link.to_channel),
                    runs=run_count if counted else 0,
                    answer_until=until if counted and now < until else None,
                )
            )
        return steps

    def _rate(self, session: Session, now: datetime) -> RailState:
        interval = timedelta(milliseconds=self._settings.current.cross_poll_interval_ms)
        last = last_unattended(session)
        verdict = rates.decide_rate(SAMPLE_TRIGGER, last, now, interval)
        until = last + interval if last is not None and verdict.verdict is Verdict.BLOCK else None
        return _state(verdict, "waits" if until else "free", until)

    def _loop(self, session: Session, now: datetime) -> RailState:
        counted = [
            link
            for link in loops.recent_links(session, now)
            if link.from_channel != loops.OWNER and now - link.at < loops.PAIR_WINDOW
        ]
        stopped = state.get(session, LOOPS_KEY, 0)
        words = f"{count(len(counted), 'link')} in the last 10 min; {count(stopped, 'loop')} stopped so far"
        brief = count(len(counted), "link") if counted else "clear"
        return _state(RailVerdict(loops.RAIL, Verdict.ALLOW, words), brief)

    def _cost(self, session: Session) -> RailState:
        spent, estimate = self._costs.spent(session), microusd(self._settings.current.cost_per_trigger)
        verdict = cost.decide_cost(spent, estimate, cost.AgentBudget(""))
        remaining = min(spent.hour_cap - spent.hour, spent.day_cap - spent.day, spent.month_cap - spent.month)
        brief = f"${max(0, remaining) / MICRO:.2f}" if verdict.verdict is Verdict.ALLOW else verdict.rule
        return _state(verdict, brief)

    def _content(self, session: Session) -> RailState:
        open_ = session.exec(select(func.count()).where(col(Allowance.used_at).is_(None))).one()
        words = "checks every prompt, edit and command of a session"
        if open_:
            words += f"; {open_} allowed once and not used yet"
        return _state(RailVerdict("content", Verdict.ALLOW, words), f"{open_} lifted" if open_ else "on")

    def _gate(self, session: Session) -> RailState:
        workspaces = self._settings.current.workspaces.values()
        facts = replace(
            self._pipeline.gate_facts(session, SAMPLE_TRIGGER, self._costs.spent(session), by_operator=False),
            novel_pair=False,
            workspace_acts=any(workspace.autonomy is Autonomy.ACT for workspace in workspaces),
        )
        verdict = gate.decide_gate(facts)
        first = verdict.rule.partition(",")[0]
        return _state(verdict, GATE_BRIEF.get(first, "asks") if first else "free")

    def _kill(self) -> RailState:
        verdict = self._kill_switch.ask()
        until = next((hold.until for hold in self._kill_switch.holds() if hold.word == verdict.rule), None)
        return _state(verdict, KILL_BRIEF.get(verdict.rule, verdict.rule) if verdict.rule else "open", until)


def _state(verdict: RailVerdict, brief: str, until: datetime | None = None) -> RailState:
    return RailState(verdict.rail, verdict.verdict, brief, verdict.reason, until)


def _stopped(session: Session, since: datetime) -> Counter[str]:
    """How many decisions each rail was the first to stop."""
    reasons = session.exec(
        select(CrosspollLog.block_reason)
        .where(col(CrosspollLog.blocked).is_(True), col(CrosspollLog.created_at) > since)
        .order_by(desc(col(CrosspollLog.id)))
        .limit(MAX_COUNTED)
    )
    return Counter(rail for reason in reasons if (rail := (reason or "").partition(":")[0]) in ORDER)
