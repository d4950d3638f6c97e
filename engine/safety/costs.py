"""The cost rail (SPEC 3.4): the caps for an hour, a day and a month, and the entries of reserved and spent money.

Money is in micro-dollars. A price is reserved in the transaction of its decision, so concurrent triggers never pass a
cap together. A reservation counts in every window until it is released, or settled with the real price. The real price
counts from the moment of settling. The hour slides; day and month begin at local midnight.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from sqlmodel import Field, Session, col, select

from engine.clock import HOUR, Clock, find_midnight, find_windows
from engine.config.settings import SettingsSource
from engine.events.engine import BudgetExceeded, CostReserved, CostSettled, CostWarned
from engine.frozen import frozen
from engine.model import CostState, RailVerdict, Refusal, SessionState, SessionView, SpendingWindow, Trigger, Verdict
from engine.storage import Row, as_stored, ask, shallow_dict, state
from engine.storage.database import Database, Transaction
from engine.wording import MICRO, to_microusd

log = logging.getLogger(__name__)

RAIL = "cost"
"""The name of the rail in verdicts."""

AGENT_BUDGET = "agent-budget"
"""The rule for an agent's own daily budget."""

WARNING_PERCENT = 80
"""The share of a cap at which a warning is recorded (SPEC 3.4)."""

RESERVED, SETTLED, RELEASED = "reserved", "settled", "released"
"""The states of a price: estimated, paid, not needed."""

_WARNED_DAY = "safety.day_cap_notified"
"""Key in the state table: the last local day on which the day's cap was reached."""

_SELECT_SUMS = """
    SELECT coalesce(sum(amount_microusd) FILTER (WHERE state = 'reserved'), 0),
           coalesce(sum(amount_microusd) FILTER (WHERE state = 'settled' AND at >= :hour), 0),
           coalesce(sum(amount_microusd) FILTER (WHERE state = 'settled' AND at >= :day), 0),
           coalesce(sum(amount_microusd) FILTER (WHERE state = 'settled' AND at >= :month), 0)
    FROM cost_entries
    WHERE (state = 'reserved' OR (state = 'settled' AND at >= min(:hour, :month))) AND agent = ifnull(:agent, agent)
"""
"""The cost in each window, of all agents or of one."""

_SELECT_PRICES = """
    SELECT at, amount_microusd FROM cost_entries
    WHERE state = 'settled' AND at >= :oldest AND amount_microusd > 0 ORDER BY at
"""
"""The settled prices since a time, the oldest first."""

_SUM_RESERVED = "SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries WHERE state = 'reserved'"
"""The cost of all reservations."""

_SUM_SETTLED = "SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries WHERE state = 'settled' AND at > :instant"
"""The cost of what was settled after a time."""


@frozen
class AgentBudget:
    """What an agent spent today, reservations included, and its budget for a day; None for no budget."""

    agent: str
    spent: int = 0
    budget: int | None = None


def decide_cost(spent: CostState, estimate: int, agent: AgentBudget) -> RailVerdict:
    """The verdict on spending `estimate` more. A cap may be reached exactly, but not passed.

    The rules in order: `month` (the caller places the hold of a hard stop), `day`, `hour`, `agent-budget`.
    """
    if estimate < 0:
        return RailVerdict(RAIL, Verdict.BLOCK, f"an estimate of {_format_usd(estimate)} is not valid", "estimate")
    for window in ("month", "day", "hour"):
        used, cap = getattr(spent, window), spent.caps[window]
        if used + estimate > cap:
            sums = f"{_format_usd(used)} spent or reserved + {_format_usd(estimate)}"
            reason = f"{sums} would exceed the {window}'s cap of {_format_usd(cap)}"
            fix = f"`clawpy config set crossPollCostCapPer{window.capitalize()} DOLLARS`"
            if window == "month":
                fix += ", then `clawpy resume month`"  # its stop lasts until it is ended
            return RailVerdict(RAIL, Verdict.BLOCK, f"{reason}; raise it: {fix}", window)
    if agent.budget is not None and agent.spent + estimate > agent.budget:
        spent_today = f"{agent.agent} spent {_format_usd(agent.spent)} today"
        reason = f"{spent_today}; {_format_usd(estimate)} more exceeds its {_format_usd(agent.budget)}"
        return RailVerdict(RAIL, Verdict.BLOCK, reason, AGENT_BUDGET)
    remaining_money = f"{_format_usd(spent.day_cap - spent.day)} of the day's {_format_usd(spent.day_cap)} are left"
    return RailVerdict(RAIL, Verdict.ALLOW, remaining_money)


# -- reserving and settling


class CostEntry(Row, table=True):
    """One price. `amount_microusd` is the estimate while it is reserved, and the real price after it is settled. `at`
    is the time of that state."""

    __tablename__ = "cost_entries"

    id: int | None = Field(default=None, primary_key=True)
    purpose: str
    state: str
    amount_microusd: int
    estimate_microusd: int
    at: datetime
    prediction_id: str | None = None
    permit_id: str | None = None
    session_id: str | None = None
    agent: str = ""
    channel: str = ""
    runner: str = ""
    workspace: str = ""

    @property
    def about(self) -> dict[str, str]:
        """The fields of an event about this entry."""
        return {"subject": self.prediction_id or self.purpose, "workspace": self.workspace, "channel": self.channel}


@frozen
class Costs:
    """Reserves, settles and reports costs.

    `find_agent_budget` returns an agent's budget for a day in micro-dollars, None for no budget. `on_reached_cap` is
    called with the window and the reason, inside the transaction that reached a cap. The kill switch then places its
    hold.
    """

    database: Database
    settings: SettingsSource
    clock: Clock
    find_agent_budget: Callable[[str], int | None]
    on_reached_cap: Callable[[Transaction, str, str], object]

    def read_state(self) -> CostState:
        """Settled plus reserved cost in each window, and the caps."""
        with self.database.read() as session:
            return self.read_state_within(session)

    def read_state_within(self, session: Session, agent: str | None = None) -> CostState:
        """`read_state` as this session sees it, so that a decision and its reservation agree; with `agent`, the cost of
        this agent alone. Each window includes all reservations, however old they are."""
        windows = find_windows(self.clock.local())
        values = {name: as_stored(begin) for name, begin in shallow_dict(windows).items()}
        [(reserved, hour, day, month)] = ask(session, _SELECT_SUMS, values | {"agent": agent})
        settings = self.settings.current
        return CostState(
            hour=reserved + hour,
            day=reserved + day,
            month=reserved + month,
            hour_cap=to_microusd(settings.cross_poll_cost_cap_per_hour),
            day_cap=to_microusd(settings.cross_poll_cost_cap_per_day),
            month_cap=to_microusd(settings.cross_poll_cost_cap_per_month),
        )

    def read_spending(self) -> tuple[SpendingWindow, ...]:
        """Hour, day and month with their buckets, pace, and when the cap would be reached (SPEC 9.1)."""
        local = self.clock.local()
        oldest = min(find_windows(local).month, local.astimezone(UTC) - max(PACE_SPAN.values()))
        with self.database.read() as session:
            rows = ask(session, _SELECT_PRICES, {"oldest": as_stored(oldest)})
            [(reserved,)] = ask(session, _SUM_RESERVED)
            caps = self.read_state_within(session).caps
        prices = [(datetime.fromisoformat(at), amount) for at, amount in rows]
        return tuple(measure_spending(window, local, prices, reserved, cap) for window, cap in caps.items())

    def sum_settled_since(self, instant: datetime) -> int:
        """The micro-dollars of all entries that were settled after `instant`."""
        with self.database.read() as session:
            return int(ask(session, _SUM_SETTLED, {"instant": as_stored(instant)}).scalar())

    def read_budget(self, session: Session, agent: str) -> AgentBudget:
        """What `agent` spent today, and its budget. `spent` is 0 without a budget."""
        budget = self.find_agent_budget(agent) if agent else None
        if budget is None:
            return AgentBudget(agent)
        return AgentBudget(agent, self.read_state_within(session, agent).day, budget)

    def reserve(self, transaction: Transaction, trigger: Trigger, permit_id: str, spent: CostState) -> None:
        """Reserve the trigger's estimate. The caller decided by `spent`, in the same transaction."""
        assignment = trigger.assignment
        self._reserve(
            transaction,
            spent,
            "session",
            trigger.estimate,
            prediction_id=trigger.prediction_id,
            permit_id=permit_id,
            agent=trigger.agent,
            channel=assignment.channel,
            runner=assignment.runner,
            workspace=assignment.workspace,
        )

    def reserve_call(self, transaction: Transaction, purpose: str, estimate: int, *, agent: str = "") -> int:
        """Reserve the price of a paid call that is not a session: `twin`, `judge`, `extraction`, `training`.

        Returns the id of the entry, for `settle` or `release`. Raises `Refusal` `cost_cap` if a cap would be passed.
        """
        session = transaction.session
        spent = self.read_state_within(session)
        verdict = decide_cost(spent, estimate, self.read_budget(session, agent))
        if not verdict.allows:
            if verdict.rule == AGENT_BUDGET:  # in a transaction of its own, because this one is rolled back
                self.database.submit(lambda tx: self.handle_reached_cap(tx, AGENT_BUDGET, agent))
            raise Refusal("cost_cap", f"{purpose}: {verdict.reason}", "or wait")
        return self._reserve(transaction, spent, purpose, estimate, agent=agent)

    def raise_reservation(self, session_id: str, total: int) -> str:
        """Raise the reservation of a running session to `total` micro-dollars. It is never lowered.

        Returns "", or the reason why a cap does not allow it; then nothing is changed. A runner calls this before each
        call that costs money, with the maximum that the session can have cost after it. So all money is reserved before
        it is spent, and no cap is passed, even if an estimate was wrong.
        """

        def raise_entry(transaction: Transaction) -> str:
            session = transaction.session
            entry = next(iter(_load_reservations(session, CostEntry.session_id == session_id)), None)
            if entry is None:
                return f"nothing is reserved for {session_id}"
            increase = total - entry.amount_microusd
            if increase <= 0:
                return ""
            spent = self.read_state_within(session)
            verdict = decide_cost(spent, increase, self.read_budget(session, entry.agent))
            if not verdict.allows:
                self.handle_reached_cap(transaction, verdict.rule, entry.agent)
                return f"cost: {verdict.reason}"
            entry.amount_microusd = total
            self._record_reserved(transaction, spent, increase, entry)
            return ""

        return self.database.write(raise_entry)

    def settle(self, transaction: Transaction, entry_id: int, amount: int) -> None:
        """Replace the estimate by the real price (micro-dollars, at least 0). Does nothing for a settled entry."""
        for entry in _load_reservations(transaction.session, CostEntry.id == entry_id):
            self._settle(transaction, entry, amount)

    def release(self, transaction: Transaction, entry_id: int) -> None:
        """Release a reservation of which nothing was spent. Does nothing for a settled or released entry."""
        for entry in _load_reservations(transaction.session, CostEntry.id == entry_id):
            _release(entry)

    def release_prediction(self, transaction: Transaction, prediction_id: str) -> None:
        """Release the reservation for a card whose session never started."""
        for entry in _load_reservations(transaction.session, CostEntry.prediction_id == prediction_id):
            _release(entry)

    def session_started(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: store that the reservation belongs to a session that began."""
        for entry in _load_reservations(transaction.session, CostEntry.prediction_id == view.prediction_id):
            entry.session_id = view.id

    def session_ended(self, transaction: Transaction, view: SessionView) -> None:
        """Observer of sessions: settle the reservation of a session that is over, or release it if the session never
        started."""
        for entry in _load_reservations(transaction.session, CostEntry.prediction_id == view.prediction_id):
            if entry.session_id in (None, view.id):
                self._settle_or_release(transaction, entry, view)

    def recover(
        self,
        transaction: Transaction,
        session_of: Callable[[str], SessionView | None],
        waiting: set[str],
        lasting: Set[int],
    ) -> int:
        """Settle or release the reservations that a crash left, at start-up. Returns the number of entries.

        `session_of` finds the session of a card. `waiting` are the ids of permits with which a session may still start.
        `lasting` are the entries of work that goes on elsewhere. A call that was interrupted may have been paid for, so
        it is settled with the reserved amount.
        """
        settled_count = 0
        for entry in _load_reservations(transaction.session):
            if entry.permit_id in waiting or entry.id in lasting:
                continue  # the newest session of its card belongs to an earlier approval
            view = session_of(entry.prediction_id) if entry.prediction_id else None
            if view is not None and not view.state.is_over:
                continue
            if entry.prediction_id is None:
                self._settle(transaction, entry, entry.amount_microusd)
            else:
                self._settle_or_release(transaction, entry, view)
            settled_count += 1
        return settled_count

    def handle_reached_cap(self, transaction: Transaction, rule: str, agent: str) -> None:
        """Handle a reached cap: place its hold, warn about the cap of the day once a day, or record that the budget of
        `agent` is exceeded. `rule` is the rule of `decide_cost`."""
        spent = self.read_state_within(transaction.session)
        cap = spent.caps.get(rule)
        if cap is not None:
            reason = f"cost: more work would exceed the {rule}'s cap of {_format_usd(cap)}"
            self.on_reached_cap(transaction, rule, reason)
        if rule == "day":
            today = self.clock.local().date().isoformat()
            if state.get(transaction.session, _WARNED_DAY) != today:
                state.put(transaction, _WARNED_DAY, today)
                transaction.record(CostWarned(window="day", spent=spent.day, cap=spent.day_cap))
        elif rule == AGENT_BUDGET:
            own = self.read_budget(transaction.session, agent)
            transaction.record(BudgetExceeded(subject=agent, spent=own.spent, budget=own.budget or 0))

    def _settle(self, transaction: Transaction, entry: CostEntry, amount: int) -> None:
        before = self.read_state_within(transaction.session)
        increase = max(0, amount) - entry.amount_microusd
        entry.state, entry.amount_microusd, entry.at = SETTLED, max(0, amount), transaction.now
        transaction.record(CostSettled(**entry.about, amount=entry.amount_microusd))
        self._handle_increase(transaction, before, increase, entry)

    def _settle_or_release(self, transaction: Transaction, entry: CostEntry, view: SessionView | None) -> None:
        """Settle an entry with the price of a session that is over. The price of an interrupted session is at least the
        reserved amount (SPEC 3.4). The entry of a session that never started is released."""
        if view is None or view.started_at is None:
            _release(entry)
            return
        price = view.cost
        if view.state is SessionState.INTERRUPTED:  # its costs were not counted to its end
            price = max(price, entry.amount_microusd)
        self._settle(transaction, entry, price)

    def _reserve(self, transaction: Transaction, before: CostState, purpose: str, estimate: int, **columns: Any) -> int:
        """Store a reservation; returns the entry's id. `columns` are other columns of `CostEntry`."""
        entry = CostEntry(
            purpose=purpose,
            state=RESERVED,
            amount_microusd=estimate,
            estimate_microusd=estimate,
            at=transaction.now,
            **columns,
        )
        transaction.insert(entry)
        self._record_reserved(transaction, before, estimate, entry)
        assert entry.id is not None
        return entry.id

    def _record_reserved(self, transaction: Transaction, before: CostState, increase: int, entry: CostEntry) -> None:
        """Record that an entry reserves `increase` more."""
        transaction.record(CostReserved(**entry.about, amount=increase))
        self._handle_increase(transaction, before, increase, entry)

    def _handle_increase(self, transaction: Transaction, before: CostState, increase: int, entry: CostEntry) -> None:
        """Handle what follows when `entry` added `increase` micro-dollars: warnings at 80 % of a cap, the month stop
        beyond its cap, and an exceeded budget of an agent."""
        for window, spent, cap in (("day", before.day, before.day_cap), ("month", before.month, before.month_cap)):
            if cap > 0 and 100 * spent < WARNING_PERCENT * cap <= 100 * (spent + increase):
                transaction.record(CostWarned(window=window, spent=spent + increase, cap=cap))
        if before.month + increase > before.month_cap:
            reason = f"cost: the month's cap of {_format_usd(before.month_cap)} has been exceeded"
            self.on_reached_cap(transaction, "month", reason)
        if entry.state == SETTLED and entry.agent and entry.amount_microusd > entry.estimate_microusd:
            self._record_exceeded_budget(transaction, entry.agent)

    def _record_exceeded_budget(self, transaction: Transaction, agent: str) -> None:
        """Record that an agent spent more than its budget, if it did."""
        try:
            own = self.read_budget(transaction.session, agent)
        except Exception:
            # The price must be stored even if an agent's folder cannot be read.
            log.exception("the budget of %s could not be read", agent)
            return
        if own.budget is not None and own.spent > own.budget:
            transaction.record(BudgetExceeded(subject=agent, spent=own.spent, budget=own.budget))


def _load_reservations(session: Session, *conditions: Any) -> Sequence[CostEntry]:
    """The entries that are reserved and meet the conditions, oldest first."""
    query = select(CostEntry).where(CostEntry.state == RESERVED, *conditions)
    return session.exec(query.order_by(col(CostEntry.id))).all()


def _release(entry: CostEntry) -> None:
    entry.state, entry.amount_microusd = RELEASED, 0


# -- the figures of `Costs.read_spending`, which are pure

BUCKET_LENGTH = timedelta(minutes=5)
"""The length of a bucket of the hour."""

PACE_SPAN = {"hour": timedelta(minutes=15), "day": timedelta(hours=3), "month": timedelta(days=7)}
"""The span of time over which the pace of a window is measured. It may begin before the window."""

SettledPrice = tuple[datetime, int]
"""(time, micro-dollars)."""


def find_bucket_edges(window: str, local: datetime) -> list[datetime]:
    """The beginnings of the buckets of `window` and the end of the last one, in UTC.

    The hour ends now; day and month end at local midnight, so a day of 23 or 25 hours has as many buckets.
    """
    windows, today = find_windows(local), local.date()
    if window == "hour":
        return [windows.hour + number * BUCKET_LENGTH for number in range(13)]
    if window == "day":
        end = find_midnight(today + timedelta(days=1), local.tzinfo)
        hours = ceil((end - windows.day) / HOUR)
        return [*(windows.day + number * HOUR for number in range(hours)), end]
    _, days = monthrange(today.year, today.month)
    return [find_midnight(today.replace(day=1) + timedelta(days=number), local.tzinfo) for number in range(days + 1)]


def measure_spending(
    window: str, local: datetime, prices: Sequence[SettledPrice], reserved: int, cap: int
) -> SpendingWindow:
    """The spending in a window. `prices` are settled, at least since the beginning of the window and of the span of its
    pace."""
    now, edges = local.astimezone(UTC), find_bucket_edges(window, local)
    buckets = [0] * (len(edges) - 1)
    for at, amount in prices:
        if at >= edges[0]:
            buckets[min(bisect_right(edges, at), len(buckets)) - 1] += amount
    span = PACE_SPAN[window]
    recent_spending = sum(amount for at, amount in prices if now - span < at)
    total, pace = sum(buckets), int(recent_spending / (span / HOUR))
    end = now + HOUR if window == "hour" else edges[-1]
    reached_at = _estimate_reached_at(now, cap - total - reserved, pace)
    if reached_at is not None and reached_at >= end:
        reached_at = None
    elapsed = sum(edge <= now for edge in edges[:-1])
    return SpendingWindow(window, edges[0], edges[-1], total, reserved, cap, tuple(buckets), elapsed, pace, reached_at)


def _estimate_reached_at(now: datetime, remaining: int, pace: int) -> datetime | None:
    """When `remaining` is spent at `pace`; `now` if nothing remains, None for never."""
    if remaining <= 0:
        return now
    hours = remaining / pace if pace > 0 else float("inf")
    return now + hours * HOUR if hours < 24 * 366 else None


def _format_usd(amount: int) -> str:
    """Micro-dollars as text: `$0.05`, with four places below a cent."""
    return f"${amount / MICRO:.2f}" if amount == 0 or abs(amount) >= MICRO // 100 else f"${amount / MICRO:.4f}"
