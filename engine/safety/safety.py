"""The service of the rails for other packages (SPEC 3), with the state of each rail for the safety screen (SPEC 9.1).

The state of a rail is its verdict on a sample trigger that breaks no other rule. So the screen cannot differ from the
decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlmodel import Session, col, desc, select

from engine.clock import Clock
from engine.config.settings import SettingsSource, WorkspaceAutonomy
from engine.learning.decisions.decisions import Decisions
from engine.model import (
    Assignment,
    ChainStep,
    DecidedBy,
    GateRuleName,
    RailDecision,
    RailState,
    RailVerdict,
    SessionView,
    Trigger,
    TriggerType,
    Verdict,
)
from engine.model.adaptation import Effect, FixTemplate, FlowOffload, PromptFragment
from engine.randomness import Randomness
from engine.safety import content, costs, gate, trigger_history
from engine.safety.content.commands import check_command
from engine.safety.content.prompts import check_prompt
from engine.safety.content.rulebook import OwnRules, make_own_rules
from engine.safety.costs import Costs
from engine.safety.kill_switch import KillSwitch
from engine.safety.permits import Permits
from engine.safety.pipeline import LOOP_COUNT_KEY, CrosspollLog, Hooks, Pipeline
from engine.safety.trigger_history import Link
from engine.storage import as_stored, ask, state, value_of
from engine.storage.database import Database, Transaction
from engine.wording import count, money, span, to_microusd

_COUNT_PASSED = "SELECT count(*), max(created_at) FROM crosspoll_log WHERE blocked IS 0"
"""The number of triggers that passed, and the time of the last."""

BLOCK_COUNT_TIME = timedelta(hours=24)
"""Time during which the screen counts a blocked trigger."""

GATE_BRIEF = {
    GateRuleName.NO_SANDBOX: "no sandbox", GateRuleName.AUTONOMY_OFF: "asks you",
    GateRuleName.ONBOARDING: "first 10", GateRuleName.WORKSPACE: "asks you", GateRuleName.QUIET: "quiet",
    GateRuleName.REJECTIONS: "rejected", GateRuleName.DAY_COST: "day 80 %",
}  # fmt: skip
"""The gate on the screen, by the first rule that applies. Any other rule has the word "asks"."""

KILL_BRIEF = {"stop-file": "stop", "config": "off", "api": "api off"}
"""The kill switch on the screen, by the rule that applies. Any other rule is its own word."""

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

_COUNT_BLOCKS = """
    SELECT substr(block_reason, 1, instr(block_reason, ':') - 1), count(*)
    FROM (SELECT block_reason FROM crosspoll_log WHERE blocked IS 1 AND created_at > :since ORDER BY id DESC LIMIT 2000)
    GROUP BY 1
"""
"""How many triggers each rail was the first to block, among the last 2000 blocks."""


class Safety:
    """All rails of one home. `pipeline`, `permits`, `costs`, `kill_switch` are its parts."""

    def __init__(
        self,
        database: Database,
        settings: SettingsSource,
        clock: Clock,
        randomness: Randomness,
        *,
        data: Path,
        decisions: Decisions,
        hooks: Hooks,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self.kill_switch = KillSwitch(
            database,
            settings,
            clock,
            data=data,
            decisions=decisions,
            stop_sessions=hooks.stop_sessions,
            on_change=hooks.on_change,
        )
        self.costs = Costs(
            database,
            settings,
            clock,
            find_agent_budget=hooks.find_agent_budget,
            on_reached_cap=self.kill_switch.place_hold_of_cap,
        )
        self.permits = Permits(database, randomness, self.kill_switch)
        self.pipeline = Pipeline(
            database,
            settings,
            clock,
            costs=self.costs,
            permits=self.permits,
            kill_switch=self.kill_switch,
            hooks=hooks,
        )

    def recover(self, session_of: Callable[[str], SessionView | None], lasting: Set[int]) -> int:
        """Release reservations that a crash left, but not the `lasting` ones; returns how many. Call it at start-up,
        after the sessions are recovered."""

        def clean_up(transaction: Transaction) -> int:
            trigger_history.delete_old_links(transaction)
            waiting = {permit.id for permit in self.permits.read_unconsumed() if transaction.now < permit.expires_at}
            return self.costs.recover(transaction, session_of, waiting, lasting)

        return self._database.write(clean_up)

    def session_ended(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: settle the cost, and write the result into the log."""
        self.costs.session_ended(transaction, view)
        self.pipeline.session_ended(transaction, view)

    def allow_once(self, prediction_id: str) -> str:
        """Allow one run of the work that the content filter blocked last for this card. Raises `Refusal`:
        `nothing_blocked`, `cannot_be_allowed`."""
        return self._database.write(lambda transaction: self.pipeline.allow_once(transaction, prediction_id))

    def check_command(self, text: str) -> RailVerdict:
        """The content filter's verdict on a shell command (SPEC 3.5)."""
        return check_command(text, own=self._make_own_rules())

    def check_prompt(self, text: str) -> RailVerdict:
        """The content filter's verdict on a prompt (SPEC 3.5)."""
        return check_prompt(text, own=self._make_own_rules())

    def find_objection_to_effect(self, effect: Effect) -> str:
        """The objection of the content filter to an effect (SPEC 5.6): to its texts for prompts, or to its commands; ""
        for none."""
        match effect:
            case PromptFragment():
                verdicts = map(self.check_prompt, effect.guidance)
            case FixTemplate():
                verdicts = map(self.check_prompt, effect.repairs)
            case FlowOffload():
                verdicts = map(self.check_command, effect.commands)
            case _:
                return ""
        return next((verdict.reason for verdict in verdicts if not verdict.allows), "")

    def count_stopped_loops(self) -> int:
        """The number of all blocked loops (`loopDetectionCount`)."""
        with self._database.read() as session:
            return int(state.get(session, LOOP_COUNT_KEY, 0))

    def count_passed_triggers(self) -> tuple[int, datetime | None]:
        """The number of all triggers that passed (`totalTriggers`), and the time of the last (`lastTriggerAt`)."""
        with self._database.read() as session:
            [(number, last)] = ask(session, _COUNT_PASSED)
        return number, None if last is None else datetime.fromisoformat(last)

    def read_log(self, limit: int = 50, *, blocked_only: bool = False) -> list[RailDecision]:
        """The newest decisions first."""
        query = select(CrosspollLog).order_by(desc(col(CrosspollLog.id))).limit(limit)
        if blocked_only:
            query = query.where(col(CrosspollLog.blocked).is_(True))
        with self._database.read() as session:
            rows = session.exec(query).all()
            allowed = self.pipeline.read_open_allowances(session)
        return [_make_entry(row, allowed_once=row.blocked and row.digest in allowed) for row in rows]

    def read_rail_states(self) -> tuple[RailState, ...]:
        """The state of every rail in the pipeline's order, with its verdict on the newest trigger."""
        now = self._clock.now()
        with self._database.read() as session:
            states = (
                self._make_loop_state(session, now),
                self._make_rate_state(session, now),
                self._make_cost_state(session),
                self._make_content_state(session),
                self._make_gate_state(session),
                self._make_kill_state(),
            )
            newest = session.exec(
                select(CrosspollLog.created_at, CrosspollLog.verdicts).order_by(desc(col(CrosspollLog.id))).limit(1)
            ).first()
            stopped_counts = dict[str, int](ask(session, _COUNT_BLOCKS, {"since": as_stored(now - BLOCK_COUNT_TIME)}))
        logged_at, verdicts = newest if newest is not None else (None, ())
        last_verdicts = {verdict.rail: verdict for verdict in verdicts}
        return tuple(
            replace(
                rail_state,
                last=last_verdicts.get(rail_state.rail),
                last_at=logged_at if rail_state.rail in last_verdicts else None,
                stopped_count=stopped_counts.get(rail_state.rail, 0),
            )
            for rail_state in states
        )

    def list_chain(self, limit: int) -> list[ChainStep]:
        """The links of the loop detector, newest first, each with its effect on a decision now."""
        now = self._clock.now()
        with self._database.read() as session:
            links = [link for link in trigger_history.load_recent_links(session, now) if link.ran]
        steps = [_make_chain_step(link, links[: place + 1], now) for place, link in enumerate(links)]
        return steps[::-1][:limit]

    def _make_own_rules(self) -> OwnRules:
        patterns = self._settings.current.content
        return make_own_rules(patterns.allow, patterns.block)

    def _make_loop_state(self, session: Session, now: datetime) -> RailState:
        counted_links = [
            link
            for link in trigger_history.load_recent_links(session, now)
            if link.from_channel != trigger_history.OWNER and now - link.at < trigger_history.PAIR_WINDOW
        ]
        link_count = count(len(counted_links), "link")
        stopped_loops = count(state.get(session, LOOP_COUNT_KEY, 0), "loop")
        description = f"{link_count} in the last {span(trigger_history.PAIR_WINDOW)}; {stopped_loops} stopped so far"
        brief = link_count if counted_links else "clear"
        return _make_rail_state(RailVerdict(trigger_history.LOOP_RAIL, Verdict.ALLOW, description), brief)

    def _make_rate_state(self, session: Session, now: datetime) -> RailState:
        interval = timedelta(milliseconds=self._settings.current.cross_poll_interval_ms)
        last_trigger_at = trigger_history.find_last_unattended(session)
        verdict = trigger_history.decide_rate(SAMPLE_TRIGGER, last_trigger_at, now, interval)
        until = last_trigger_at + interval if last_trigger_at is not None and verdict.blocks else None
        return _make_rail_state(verdict, "waits" if until else "free", until)

    def _make_cost_state(self, session: Session) -> RailState:
        spent = self.costs.read_state_within(session)
        estimate = to_microusd(self._settings.current.cost_per_trigger)
        verdict = costs.decide_cost(spent, estimate, costs.AgentBudget(""))
        remaining = min(spent.hour_cap - spent.hour, spent.day_cap - spent.day, spent.month_cap - spent.month)
        brief = money(max(0, remaining)) if verdict.allows else verdict.rule
        return _make_rail_state(verdict, brief)

    def _make_content_state(self, session: Session) -> RailState:
        unused_count = len(self.pipeline.read_open_allowances(session))
        description, brief = "checks every prompt, edit and command of a session", "on"
        if unused_count:
            description += f"; {unused_count} allowed once and not used yet"
            brief = f"{unused_count} allowed once"
        return _make_rail_state(RailVerdict(content.RAIL, Verdict.ALLOW, description), brief)

    def _make_gate_state(self, session: Session) -> RailState:
        workspaces = self._settings.current.workspaces.values()
        facts = replace(
            self.pipeline.make_gate_facts(
                session, SAMPLE_TRIGGER, self.costs.read_state_within(session), Verdict.ALLOW, by_operator=False
            ),
            novel_pair_reason="",
            workspace_acts=any(workspace.autonomy is WorkspaceAutonomy.ACT for workspace in workspaces),
        )
        verdict = gate.decide_gate(facts)
        if not verdict.rules:
            return _make_rail_state(verdict, "free")
        first_rule = GateRuleName(verdict.rules[0])
        return _make_rail_state(verdict, GATE_BRIEF.get(first_rule, "asks"))

    def _make_kill_state(self) -> RailState:
        verdict = self.kill_switch.decide_now()
        until = next((hold.until for hold in self.kill_switch.list_holds() if hold.word == verdict.rule), None)
        return _make_rail_state(verdict, KILL_BRIEF.get(verdict.rule, verdict.rule) if verdict.rule else "open", until)


def _make_entry(row: CrosspollLog, *, allowed_once: bool) -> RailDecision:
    return value_of(
        row,
        RailDecision,
        at=row.created_at,
        prediction_id=row.prediction_id or "",
        channel=row.target_channel,
        estimate=to_microusd(row.cost_estimate),
        reason=row.block_reason or "",
        allowed_once=allowed_once,
    )


def _make_rail_state(verdict: RailVerdict, brief: str, until: datetime | None = None) -> RailState:
    return RailState(verdict.rail, verdict.verdict, brief, verdict.reason, until)


def _make_chain_step(link: Link, links: Sequence[Link], now: datetime) -> ChainStep:
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
        depth=trigger_history.measure_chain_depth(same_workspace, link.to_channel),
        runs=trigger_history.count_repeats(same_workspace, link.pair, now) if is_counted else 0,
        answer_until=until if is_counted and now < until else None,
    )
