"""Cost caps (SPEC 3.4): the pure part. Windows of time, caps, the verdict, and when to warn.

Money is whole micro-dollars. The hour slides; day and month begin at local midnight, which is not always 24 hours
before the next one. `engine.safety.costs` keeps the ledger these functions judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from engine.model import MICRO, CostState, RailVerdict, Verdict

RAIL = "cost"
HOUR = timedelta(hours=1)


AGENT_BUDGET = "agent-budget"
"""The rule that an agent's own budget of the day is."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the three windows begin, as instants in UTC. What lies exactly at a beginning counts."""

    hour: datetime
    day: datetime
    month: datetime


def windows(local: datetime) -> Windows:
    """The windows at a local time whose tzinfo knows the zone's changes (a ZoneInfo or the machine's zone).

    Midnight is found on the wall clock, so a day of 23 or 25 hours counts whole. Where midnight does not exist the
    day begins with the change.
    """
    midnight = datetime.combine(local.date(), time.min, tzinfo=local.tzinfo)
    first = datetime.combine(local.date().replace(day=1), time.min, tzinfo=local.tzinfo)
    return Windows(local.astimezone(UTC) - HOUR, midnight.astimezone(UTC), first.astimezone(UTC))


@dataclass(frozen=True, slots=True)
class AgentBudget:
    """What an agent spent today, reservations included, and its own budget of a day; None is without limit."""

    agent: str
    spent: int = 0
    budget: int | None = None


def decide_cost(spent: CostState, estimate: int, agent: AgentBudget) -> RailVerdict:
    """May `estimate` more be spent? Reaching a cap exactly is allowed, passing it is not.

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


def warned(before: int, after: int, cap: int) -> bool:
    """True when the step from `before` to `after` reaches 80 % of `cap`: once for each crossing."""
    return cap > 0 and before * 5 < cap * 4 <= after * 5


def money(amount: int) -> str:
    """Micro-dollars in words: `$0.05`, four places below a cent."""
    return f"${amount / MICRO:.2f}" if amount == 0 or abs(amount) >= MICRO // 100 else f"${amount / MICRO:.4f}"
