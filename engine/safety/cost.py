"""Cost caps (SPEC 3.4): windows of time, the verdict, when to warn, and the burn rate. Pure.

Money is in micro-dollars. The hour slides; day and month begin at local midnight. `engine.safety.costs` stores the
costs. `burn` gives the buckets of a window, the recent pace, and when the cap is reached (SPEC 9.1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from engine.frozen import frozen
from engine.model import MICRO, Burn, CostState, RailVerdict, Verdict

RAIL = "cost"
HOUR = timedelta(hours=1)


AGENT_BUDGET = "agent-budget"
"""The rule for an agent's own daily budget."""


@frozen
class Windows:
    """The beginnings of the three windows in UTC, which belong to the windows."""

    hour: datetime
    day: datetime
    month: datetime


def cost_windows(local: datetime) -> Windows:
    """The windows at a local time whose tzinfo knows the zone's changes (a ZoneInfo or the machine's zone).

    Midnight is found on the wall clock, so a day of 23 or 25 hours counts whole. Where midnight does not exist the
    day begins with the change.
    """
    midnight = datetime.combine(local.date(), time.min, tzinfo=local.tzinfo)
    first = datetime.combine(local.date().replace(day=1), time.min, tzinfo=local.tzinfo)
    return Windows(local.astimezone(UTC) - HOUR, midnight.astimezone(UTC), first.astimezone(UTC))


@frozen
class AgentBudget:
    """An agent's spending today, with reservations, and its daily budget, None for no limit."""

    agent: str
    spent: int = 0
    budget: int | None = None


def decide_cost(spent: CostState, estimate: int, agent: AgentBudget) -> RailVerdict:
    """Whether `estimate` more may be spent. Reaching a cap exactly is allowed, passing it is not.

    Rules in order: `month` (hard stop: the caller places the hold), `day`, `hour`, `agent-budget`.
    """
    if estimate < 0:
        return RailVerdict(RAIL, Verdict.BLOCK, f"an estimate of {money(estimate)} is not valid", "estimate")
    for name, used, cap, words in (
        ("month", spent.month, spent.month_cap, "for this month; work stays stopped until `resume month`"),
        ("day", spent.day, spent.day_cap, "for today"),
        ("hour", spent.hour, spent.hour_cap, "for the last hour; wait until earlier spending is an hour old"),
    ):
        if used + estimate > cap:
            return RailVerdict(
                RAIL,
                Verdict.BLOCK,
                f"{money(used)} + {money(estimate)} would exceed the cap of {money(cap)} {words}",
                name,
            )
    if agent.budget is not None and agent.spent + estimate > agent.budget:
        return RailVerdict(
            RAIL,
            Verdict.BLOCK,
            f"{agent.agent} spent {money(agent.spent)} today; {money(estimate)} more exceeds its {money(agent.budget)}",
            AGENT_BUDGET,
        )
    return RailVerdict(RAIL, Verdict.ALLOW, f"{money(estimate)} of {money(spent.day_cap - spent.day)} left today")


def crosses_warning(before: int, after: int, cap: int) -> bool:
    """Whether the step from `before` to `after` reaches 80 % of `cap`: once for each crossing."""
    return cap > 0 and before * 5 < cap * 4 <= after * 5


def money(amount: int) -> str:
    """Micro-dollars in words: `$0.05`, four places below a cent."""
    return f"${amount / MICRO:.2f}" if amount == 0 or abs(amount) >= MICRO // 100 else f"${amount / MICRO:.4f}"


BUCKET_LENGTH = timedelta(minutes=5)
PACE_SPAN = {"hour": timedelta(minutes=15), "day": timedelta(hours=3), "month": timedelta(days=7)}
"""The span whose spending is the pace of a window; it may begin before the window does."""

Spent = tuple[datetime, int]
"""A settled price: when, and micro-dollars."""


def bucket_edges(window: str, local: datetime) -> list[datetime]:
    """Where the buckets of `window` begin and the last one ends, in UTC.

    The hour ends now; day and month end at local midnight, so a day of 23 or 25 hours has as many buckets.
    """
    begin = cost_windows(local)
    if window == "hour":
        return [begin.hour + number * BUCKET_LENGTH for number in range(13)]
    today = local.date()
    if window == "day":
        end = _midnight(today + timedelta(days=1), local)
        steps = -(-(end - begin.day) // HOUR)
        return [*(begin.day + number * HOUR for number in range(steps)), end]
    first = today.replace(day=1)
    days = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - first
    return [_midnight(first + timedelta(days=number), local) for number in range(days.days + 1)]


def burn(window: str, local: datetime, spent: Sequence[Spent], reserved: int, cap: int) -> Burn:
    """The burn rate of a window. `spent` are settled prices, oldest first, at least since the beginning of the window
    and of the span of its pace."""
    now, edges = local.astimezone(UTC), bucket_edges(window, local)
    buckets = [0] * (len(edges) - 1)
    for at, amount in spent:
        if at >= edges[0]:
            buckets[min(bisect_right(edges, at), len(buckets)) - 1] += amount
    span = PACE_SPAN[window]
    recent_spending = sum(amount for at, amount in spent if now - span < at)
    total, pace = sum(buckets), int(recent_spending / (span / HOUR))
    end = now + HOUR if window == "hour" else edges[-1]
    reached_at = _reached_at(now, cap - total - reserved, pace)
    reached_at = reached_at if reached_at is not None and reached_at < end else None
    elapsed = sum(mark <= now for mark in edges[:-1])
    return Burn(window, edges[0], edges[-1], total, reserved, cap, tuple(buckets), elapsed, pace, reached_at)


def _reached_at(now: datetime, remaining: int, pace: int) -> datetime | None:
    """When `remaining` is spent at `pace`; `now` if nothing remains, None for never."""
    if remaining <= 0:
        return now
    hours = remaining / pace if pace > 0 else float("inf")
    return now + hours * HOUR if hours < 24 * 366 else None


def _midnight(day: date, local: datetime) -> datetime:
    return datetime.combine(day, time.min, tzinfo=local.tzinfo).astimezone(UTC)
