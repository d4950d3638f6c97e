"""The state of each rail for the safety screen (SPEC 9.1).

The state of a rail is its verdict on a sample trigger that breaks no other rule. So the screen cannot differ from the
decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlmodel import Session, col, desc, func, select

from engine.clock import Clock
from engine.config import SettingsSource, WorkspaceAutonomy
from engine.model import (
    MICRO,
    Assignment,
    ChainStep,
    DecidedBy,
    GateRuleName,
    RailState,
    RailVerdict,
    Trigger,
    TriggerType,
    Verdict,
    microusd,
)
from engine.model.text import count
from engine.safety import costs, gate, trigger_history
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.pipeline import LOOP_COUNT_KEY, Allowance, CrosspollLog, Pipeline
from engine.safety.trigger_history import Link
from engine.storage import state
from engine.storage.database import Database
from engine.storage.rows import as_stored, ask

BLOCKS_COUNTED_FOR = timedelta(hours=24)
"""Time during which the screen counts a blocked trigger."""

GATE_BRIEF = {
    GateRuleName.NO_SANDBOX: "no sandbox", GateRuleName.AUTONOMY_OFF: "asks you",
    GateRuleName.ONBOARDING: "first 10", GateRuleName.WORKSPACE: "asks you", GateRuleName.QUIET: "quiet",
    GateRuleName.REJECTIONS: "rejected", GateRuleName.DAY_COST: "day 80 %",
}  # fmt: skip
"""The gate on the screen, by the first rule that applies. Any other rule has the word "asks"."""
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
"""Work by the engine itself that no rail stops."""

_BLOCKS = """
    SELECT substr(block_reason, 1, instr(block_reason, ':') - 1), count(*)
    FROM (SELECT block_reason FROM crosspoll_log WHERE blocked IS 1 AND created_at > :since ORDER BY id DESC LIMIT 2000)
    GROUP BY 1
"""
"""How many triggers each rail was the first to block, among the last 2000 blocks."""


class RailStates:
    """Reads the states of the rails."""

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        *,
        costs: Costs,
        kill_switch: KillSwitch,
        pipeline: Pipeline,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._costs = costs
        self._kill_switch = kill_switch
        self._pipeline = pipeline

    def read(self) -> tuple[RailState, ...]:
        """The state of every rail in the pipeline's order, with its verdict on the newest trigger."""
        now = self._clock.now()
        with self._database.read() as session:
            states = (
                self._loop_state(session, now),
                self._rate_state(session, now),
                self._cost_state(session),
                self._content_state(session),
                self._gate_state(session),
                self._kill_state(),
            )
            newest = session.exec(
                select(CrosspollLog.created_at, CrosspollLog.verdicts).order_by(desc(col(CrosspollLog.id))).limit(1)
            ).first()
            blocks = dict[str, int](ask(session, _BLOCKS, {"since": as_stored(now - BLOCKS_COUNTED_FOR)}))
        at, verdicts = newest if newest is not None else (None, ())
        last = {verdict.rail: verdict for verdict in verdicts}
        return tuple(
            replace(
                shown,
                last=last.get(shown.rail),
                last_at=at if shown.rail in last else None,
                stopped=blocks.get(shown.rail, 0),
            )
            for shown in states
        )

    def read_chain(self, limit: int) -> list[ChainStep]:
        """The links of the loop detector, newest first, each with its effect on a decision now."""
        now = self._clock.now()
        with self._database.read() as session:
            links = [link for link in trigger_history.recent_links(session, now) if link.ran]
        steps = [_chain_step(link, links[: place + 1], now) for place, link in enumerate(links)]
        return steps[::-1][:limit]

    def _rate_state(self, session: Session, now: datetime) -> RailState:
        interval = timedelta(milliseconds=self._settings.current.cross_poll_interval_ms)
        last = trigger_history.last_unattended(session)
        verdict = trigger_history.decide_rate(SAMPLE_TRIGGER, last, now, interval)
        until = last + interval if last is not None and verdict.verdict is Verdict.BLOCK else None
        return _rail_state(verdict, "waits" if until else "free", until)

    def _loop_state(self, session: Session, now: datetime) -> RailState:
        counted = [
            link
            for link in trigger_history.recent_links(session, now)
            if link.from_channel != trigger_history.OWNER and now - link.at < trigger_history.PAIR_WINDOW
        ]
        stopped = state.get(session, LOOP_COUNT_KEY, 0)
        words = f"{count(len(counted), 'link')} in the last 10 min; {count(stopped, 'loop')} stopped so far"
        brief = count(len(counted), "link") if counted else "clear"
        return _rail_state(RailVerdict(trigger_history.LOOP, Verdict.ALLOW, words), brief)

    def _cost_state(self, session: Session) -> RailState:
        spent, estimate = self._costs.spent(session), microusd(self._settings.current.cost_per_trigger)
        verdict = costs.decide_cost(spent, estimate, costs.AgentBudget(""))
        remaining = min(spent.hour_cap - spent.hour, spent.day_cap - spent.day, spent.month_cap - spent.month)
        brief = f"${max(0, remaining) / MICRO:.2f}" if verdict.verdict is Verdict.ALLOW else verdict.rule
        return _rail_state(verdict, brief)

    def _content_state(self, session: Session) -> RailState:
        allowances = session.exec(select(func.count()).where(col(Allowance.used_at).is_(None))).one()
        words = "checks every prompt, edit and command of a session"
        if allowances:
            words += f"; {allowances} allowed once and not used yet"
        return _rail_state(
            RailVerdict("content", Verdict.ALLOW, words), f"{allowances} allowed once" if allowances else "on"
        )

    def _gate_state(self, session: Session) -> RailState:
        workspaces = self._settings.current.workspaces.values()
        facts = replace(
            self._pipeline.gate_facts(session, SAMPLE_TRIGGER, self._costs.spent(session), by_operator=False),
            novel_pair="",
            workspace_acts=any(workspace.autonomy is WorkspaceAutonomy.ACT for workspace in workspaces),
        )
        verdict = gate.decide_gate(facts)
        if not verdict.rule:
            return _rail_state(verdict, "free")
        first_rule = GateRuleName(verdict.rule.partition(",")[0])
        return _rail_state(verdict, GATE_BRIEF.get(first_rule, "asks"))

    def _kill_state(self) -> RailState:
        verdict = self._kill_switch.current_verdict()
        until = next((hold.until for hold in self._kill_switch.holds() if hold.word == verdict.rule), None)
        return _rail_state(verdict, KILL_BRIEF.get(verdict.rule, verdict.rule) if verdict.rule else "open", until)


def _rail_state(verdict: RailVerdict, brief: str, until: datetime | None = None) -> RailState:
    return RailState(verdict.rail, verdict.verdict, brief, verdict.reason, until)


def _chain_step(link: Link, links: Sequence[Link], now: datetime) -> ChainStep:
    """A link for display; `links` are those up to it, oldest first."""
    same_workspace = [earlier for earlier in links if earlier.workspace == link.workspace]
    is_counted = link.from_channel != trigger_history.OWNER
    until = link.at + trigger_history.REVERSE_WINDOW
    return ChainStep(
        link.from_channel,
        link.to_channel,
        link.prediction_id,
        link.workspace,
        link.at,
        depth=trigger_history.chain_depth(same_workspace, link.to_channel),
        runs=trigger_history.count_repeats(same_workspace, link.pair, now) if is_counted else 0,
        answer_until=until if is_counted and now < until else None,
    )
