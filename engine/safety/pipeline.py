"""The pipeline (SPEC 3.1): asks the rails loop → rate → cost → content → gate → kill, then issues a permit.

The loop comes before the rate, so that agents that trigger each other are reported even if they do it slowly. All six
rails are always asked and logged. The first rail that does not allow a trigger decides. A rail that raises an error
blocks. A permit is the one thing that lets a session start. It is stored, used once, and bound to a digest. The session
that starts gives it back.

`Pipeline.decide` runs inside the caller's transaction on the only writer thread, so the state that it reads
does not change before it reserves the cost, records the link and issues the permit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlmodel import Field, Session, col, desc, select

from engine.clock import Clock
from engine.config import FLOW
from engine.config.settings import SettingsSource, WorkspaceAutonomy
from engine.events.engine import LoopDetected, TriggerBlocked
from engine.frozen import frozen, frozen_kw_only
from engine.model import (
    RULE_FAULT,
    Assignment,
    CostState,
    DecidedBy,
    GateRuleName,
    Permit,
    RailVerdict,
    Refusal,
    Ruling,
    SessionView,
    Trigger,
    TriggerType,
    Verdict,
)
from engine.safety import costs, gate
from engine.safety.content import RAIL as CONTENT
from engine.safety.content import ContentFacts, decide_content
from engine.safety.content.prompts import check_assignment
from engine.safety.content.rulebook import make_own_rules
from engine.safety.costs import Costs
from engine.safety.gate import GateFacts, decide_gate
from engine.safety.kill_switch import RAIL as KILL
from engine.safety.kill_switch import KillSwitch
from engine.safety.permits import Permits
from engine.safety.production_targets import find_targets_of_trigger
from engine.safety.trigger_history import (
    LOOP_RAIL,
    OWNER,
    RATE_RAIL,
    ChainLink,
    decide_loop,
    decide_rate,
    find_chain_start,
    find_last_unattended,
    is_by_operator,
    load_recent_links,
    make_link,
)
from engine.storage import Row, as_stored, ask, shallow_dict, state
from engine.storage.database import Database, Transaction
from engine.wording import to_dollars

log = logging.getLogger(__name__)

LOCAL_USER = "local"
LOOP_COUNT_KEY = "safety.loop_detections"
"""Key in the state table: the number of all blocked loops."""

HELD_BACK_LOG_INTERVAL = timedelta(hours=24)
"""Time after which work that is still held back is logged again."""

ALLOWANCE_LIFETIME = timedelta(hours=24)
"""Time in which work that was allowed once must be approved."""

RAIL_ORDER = (LOOP_RAIL, RATE_RAIL, costs.RAIL, CONTENT, gate.RAIL, KILL)
"""The names of the rails, in the order in which they decide."""


class CrosspollLog(Row, table=True):
    """One decision on a trigger, with the verdicts of the rails in their order. `prediction_id` is no foreign key,
    because the log outlives the card."""

    __tablename__ = "crosspoll_log"

    id: int | None = Field(default=None, primary_key=True)
    user_id: str = LOCAL_USER
    prediction_id: str | None
    trigger_type: TriggerType
    target_channel: str
    prompt: str
    result: dict[str, Any] | None = None
    cost_estimate: float = 0.05
    blocked: bool = False
    block_reason: str | None = None
    created_at: datetime
    verdicts: tuple[RailVerdict, ...]
    workspace: str
    permit_id: str | None = None
    digest: str
    from_channel: str
    decided_by: str
    unattended: bool


class Allowance(Row, table=True):
    """The operator's *allow once* (SPEC 3.5): content that the filter blocks, by its digest, may run one time.

    It is used by a permit for this work that was issued since, and open again if that permit is revoked.
    """

    __tablename__ = "content_allowances"

    digest: str = Field(primary_key=True)
    granted_at: datetime


_OPEN_ALLOWANCES = """
    SELECT digest FROM content_allowances AS allowance WHERE granted_at > :since AND NOT EXISTS (
        SELECT 1 FROM permits WHERE digest = allowance.digest AND issued_at >= granted_at AND revoked_at IS NULL
    )
"""
"""Selects the digests that were allowed once since a time and did not run since."""

_SELECT_PASSED_PAIR = """
    SELECT 1 FROM crosspoll_log
    WHERE target_channel = :channel AND from_channel = ifnull(:start, from_channel) AND blocked IS 0 LIMIT 1
"""
"""Whether a trigger from `start` (None for any) ever passed to a channel."""


@frozen_kw_only
class Hooks:
    """Functions of services above, which the rails call."""

    stop_sessions: Callable[[str], object]
    """Ends every running session within a second; takes the reason."""
    find_agent_budget: Callable[[str], int | None]
    """An agent's budget for a day in micro-dollars."""
    find_quiet_reason: Callable[[], str]
    """Why it is quiet now (SPEC 7.3), "" if it is not."""
    is_confined: Callable[[], bool]
    """Whether a sandbox works on this machine."""
    data_parameters: Callable[[str | None], frozenset[str]]
    """The parameters of a flow that are never run, such as names of files. The content rail does not judge them."""
    on_change: Callable[[], None]
    """Called after holds changed, possibly on the writer thread, so it must neither write nor wait."""


@frozen
class Pipeline:
    """Asks all rails about triggers."""

    database: Database
    settings: SettingsSource
    clock: Clock
    costs: Costs
    permits: Permits
    kill_switch: KillSwitch
    hooks: Hooks

    def preview(self, trigger: Trigger) -> tuple[RailVerdict, ...]:
        """The verdicts of all rails on a pending card; changes nothing.

        Gate and content answer as without an operator's approval, so that the card shows what they ask. If the gate's
        `rule` contains `novel-pair`, the card has the NEW badge.
        """
        with self.database.read() as session:
            return self._ask_all(session, trigger, self.clock.now(), self._make_cost_reader(session), decided=False)

    def decide(self, transaction: Transaction, trigger: Trigger) -> Ruling:
        """Ask the rails about a trigger and log it; if all allow, reserve its cost and issue its permit."""
        self.kill_switch.end_expired(transaction)
        for prediction_id in self.permits.revoke_expired(transaction):
            self.costs.release_prediction(transaction, prediction_id)
        spent = self._make_cost_reader(transaction.session)
        verdicts = self._ask_all(transaction.session, trigger, transaction.now, spent, decided=True)
        blocked_by = next((verdict for verdict in verdicts if not verdict.allows), None)
        permit: Permit | None = None
        if blocked_by is None:
            permit = self.permits.issue(transaction, trigger)
            self.costs.reserve(transaction, trigger, permit.id, spent())
        else:
            self._record_block(transaction, trigger, verdicts, blocked_by)
        if blocked_by is None or (trigger.asked_by and blocked_by.rail == RATE_RAIL):
            link = make_link(trigger, transaction.now, ran=blocked_by is None)
            transaction.insert(ChainLink(**shallow_dict(link)))
        ruling = Ruling(verdicts, permit, blocked_by)
        transaction.insert(_make_log_row(trigger, ruling, transaction.now))
        return ruling

    def revoke(self, transaction: Transaction, prediction_id: str) -> None:
        """Revoke the permit of an approval that was undone before its session started, and release its
        reservation."""
        self.permits.revoke(transaction, prediction_id)
        self.costs.release_prediction(transaction, prediction_id)

    def allow_once(self, transaction: Transaction, prediction_id: str) -> str:
        """Allow one run of the work that the content filter blocked last for this card; returns its digest.

        Raises `Refusal`: `nothing_blocked` if the content filter did not block its last trigger, `cannot_be_allowed` if
        no approval can lift that block.
        """
        newest = _load_newest_entry(transaction.session, CrosspollLog.prediction_id == prediction_id)
        block = next((verdict for verdict in newest.verdicts if verdict.rail == CONTENT), None) if newest else None
        if newest is None or block is None or not block.blocks:
            message = f"the content filter did not block {prediction_id}"
            raise Refusal("nothing_blocked", message, "approve the card first")
        if not block.can_be_allowed_once:
            raise Refusal("cannot_be_allowed", f"no approval lifts this: {block.reason}", "fix the cause")
        transaction.session.merge(Allowance(digest=newest.digest, granted_at=transaction.now))
        return newest.digest

    def read_open_allowances(self, session: Session) -> set[str]:
        """The digests of the work that the operator allowed once in the last 24 hours and that did not run since."""
        since = as_stored(self.clock.now() - ALLOWANCE_LIFETIME)
        return {digest for (digest,) in ask(session, _OPEN_ALLOWANCES, {"since": since})}

    def is_allowed_once(self, permit_id: str) -> bool:
        """Whether the content rail let the work of this permit pass only because the operator allowed it once. The log
        has the verdict of that time."""
        with self.database.read() as session:
            row = _load_newest_entry(session, CrosspollLog.permit_id == permit_id)
        return row is not None and any(verdict.is_allowed_once for verdict in row.verdicts)

    def hold_back(
        self,
        transaction: Transaction,
        prediction_id: str,
        assignment: Assignment,
        verdicts: tuple[RailVerdict, ...],
        blocked_by: RailVerdict,
    ) -> None:
        """Log a proposal that is no card because of a rail. The same work is logged again after a day."""
        since = transaction.now - HELD_BACK_LOG_INTERVAL
        same_work = (CrosspollLog.digest == assignment.digest, col(CrosspollLog.created_at) > since)
        if _load_newest_entry(transaction.session, col(CrosspollLog.blocked).is_(True), *same_work) is not None:
            return
        trigger = Trigger(
            prediction_id=prediction_id,
            type=TriggerType.AUTONOMOUS,
            assignment=assignment,
            agent="",
            confidence=0.0,
            estimate=0,
            decided_by=DecidedBy.AUTONOMY,
        )
        self._record_block(transaction, trigger, (), blocked_by)
        transaction.insert(_make_log_row(trigger, Ruling(verdicts, None, blocked_by), transaction.now))

    def session_ended(self, transaction: Transaction, view: SessionView) -> None:
        """Store the result of a trigger in its row of the log."""
        passed = col(CrosspollLog.blocked).is_(False)
        row = _load_newest_entry(transaction.session, CrosspollLog.prediction_id == view.prediction_id, passed)
        if row is not None:
            cost = to_dollars(view.cost)
            row.result = {"session": view.id, "state": view.state.value, "summary": view.summary, "cost": cost}

    def make_gate_facts(
        self, session: Session, trigger: Trigger, spent: CostState, content: Verdict, *, by_operator: bool
    ) -> GateFacts:
        """The facts by which the gate judges a trigger. `content` is what the content filter says."""
        settings = self.settings.current
        workspace = settings.get_workspace(trigger.assignment.workspace)
        return GateFacts(
            confidence=trigger.confidence,
            estimate=trigger.estimate,
            targets=find_targets_of_trigger(trigger, settings.production),
            novel_pair_reason=self._describe_novel_pair(session, trigger),
            rejections=self.kill_switch.count_rejections(session),
            decisions=self.kill_switch.decisions.count_decided_cards(session),
            content=content,
            day_cost=spent.day,
            day_cap=spent.day_cap,
            by_operator=by_operator,
            is_autonomous=settings.autonomous_mode_enabled,
            workspace_acts=workspace.autonomy is WorkspaceAutonomy.ACT,
            quiet_reason=self.hooks.find_quiet_reason(),
            phase=trigger.phase,
            approval_bound=trigger.approval_bound,
            threshold=settings.cross_poll_auto_execute_threshold,
            is_suggested=trigger.is_suggested,
            is_ordered=trigger.is_ordered,
            is_confined=self.hooks.is_confined(),
            is_sandbox_waived=workspace.without_sandbox,
            is_confirmed=trigger.without_sandbox,
            is_always_asked=trigger.assignment.flow in gate.ALWAYS_ASKED,
        )

    def _make_cost_reader(self, session: Session) -> Callable[[], CostState]:
        """A function that reads the costs at its first call. If reading fails, the rail that calls it fails, and so
        blocks."""
        return cache(lambda: self.costs.read_state_within(session))

    def _ask_all(
        self, session: Session, trigger: Trigger, now: datetime, spent: Callable[[], CostState], *, decided: bool
    ) -> tuple[RailVerdict, ...]:
        """The verdicts of all rails, in the order of `RAIL_ORDER`."""
        by_operator = is_by_operator(trigger)
        is_approved = decided and by_operator
        interval = timedelta(milliseconds=self.settings.current.cross_poll_interval_ms)
        content_verdict = _ask_rail(CONTENT, lambda: self._decide_content(session, trigger, by_operator=is_approved))
        content = content_verdict.verdict
        return (
            _ask_rail(LOOP_RAIL, lambda: _judge_loop(session, trigger, now)),
            _ask_rail(
                RATE_RAIL,
                lambda: decide_rate(trigger, find_last_unattended(session), now, interval),
            ),
            _ask_rail(
                costs.RAIL,
                lambda: costs.decide_cost(spent(), trigger.estimate, self.costs.read_budget(session, trigger.agent)),
            ),
            content_verdict,
            _ask_rail(
                gate.RAIL,
                lambda: decide_gate(self.make_gate_facts(session, trigger, spent(), content, by_operator=is_approved)),
            ),
            _ask_rail(KILL, lambda: self.kill_switch.decide_within(session, by_operator=by_operator)),
        )

    def _decide_content(self, session: Session, trigger: Trigger, *, by_operator: bool) -> RailVerdict:
        settings = self.settings.current
        own = make_own_rules(settings.content.allow, settings.content.block)
        assignment = trigger.assignment
        data_parameters = self.hooks.data_parameters(assignment.flow) if assignment.runner == FLOW else frozenset()
        verdict = check_assignment(assignment, settings.channels, own=own, data=data_parameters)
        facts = ContentFacts(
            by_operator=by_operator,
            acknowledged=trigger.acknowledged_digest == assignment.digest,
            allowed_once=verdict.blocks and assignment.digest in self.read_open_allowances(session),
        )
        return decide_content(verdict, facts)

    def _describe_novel_pair(self, session: Session, trigger: Trigger) -> str:
        """In words, that no trigger between these two channels ever passed; "" if one did. For a trigger within one
        channel or by a program, only the target channel counts."""
        channel = trigger.assignment.channel
        start: str | None = find_chain_start(trigger)
        if start == channel or start not in (OWNER, *self.settings.current.channels):
            start = None
        if ask(session, _SELECT_PASSED_PAIR, {"channel": channel, "start": start}):
            return ""
        if start in (None, OWNER):
            return f"nothing {'that you asked for ' if start else ''}has run on {channel} yet"
        return f"work on {start} has never led to work on {channel}"

    def _record_block(
        self, transaction: Transaction, trigger: Trigger, verdicts: tuple[RailVerdict, ...], first: RailVerdict
    ) -> None:
        """Record the events of a block, count loops, and place holds."""
        about = {"subject": trigger.prediction_id, "workspace": trigger.assignment.workspace}
        transaction.record(TriggerBlocked(**about, rail=first.rail, verdict=first.verdict.value, reason=first.reason))
        for verdict in verdicts:
            if verdict.allows or verdict.rule == RULE_FAULT:
                continue
            if verdict.rail == LOOP_RAIL:
                count = state.get(transaction.session, LOOP_COUNT_KEY, 0) + 1
                state.put(transaction, LOOP_COUNT_KEY, count)
                log.warning("loop %d: %s", count, verdict.reason)
                transaction.record(LoopDetected(**about, reason=verdict.reason))
            if verdict.rail == costs.RAIL:
                self.costs.handle_reached_cap(transaction, verdict.rule, trigger.agent)
            if verdict.rail == gate.RAIL and GateRuleName.REJECTIONS in verdict.rules:
                self.kill_switch.pause_after_rejections(transaction)


def _ask_rail(name: str, rail: Callable[[], RailVerdict]) -> RailVerdict:
    """The verdict of a rail; a rail that raises blocks."""
    try:
        return rail()
    except Exception as error:
        log.exception("the rail %s failed", name)
        return RailVerdict(name, Verdict.BLOCK, f"the rail failed ({type(error).__name__}); nothing runs", RULE_FAULT)


def _judge_loop(session: Session, trigger: Trigger, now: datetime) -> RailVerdict:
    link = make_link(trigger, now)
    begins_chain = link.from_channel == OWNER
    return decide_loop(link, () if begins_chain else load_recent_links(session, now))


def _load_newest_entry(session: Session, *conditions: Any) -> CrosspollLog | None:
    """The newest row of the log that meets the conditions."""
    query = select(CrosspollLog).where(*conditions).order_by(desc(col(CrosspollLog.id))).limit(1)
    return session.exec(query).first()


def _make_log_row(trigger: Trigger, ruling: Ruling, now: datetime) -> CrosspollLog:
    assignment, blocked_by, permit = trigger.assignment, ruling.blocked_by, ruling.permit
    return CrosspollLog(
        prediction_id=trigger.prediction_id,
        trigger_type=trigger.type,
        target_channel=assignment.channel,
        prompt=assignment.prompt,
        cost_estimate=to_dollars(trigger.estimate),
        blocked=blocked_by is not None,
        block_reason=f"{blocked_by.rail}: {blocked_by.reason}" if blocked_by else None,
        created_at=now,
        verdicts=ruling.verdicts,
        workspace=assignment.workspace,
        permit_id=permit.id if permit else None,
        digest=assignment.digest,
        from_channel=find_chain_start(trigger),
        decided_by=trigger.decided_by,
        unattended=not is_by_operator(trigger),
    )
