"""The rules of the rails (SPEC 2.5, 3.3, 3.4), computed a second time: from raw rows and plain arithmetic."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from typing import Any

HOUR_CAP, DAY_CAP, MONTH_CAP = 1_500_000, 4_000_000, 9_000_000
"""The caps of these tests, in micro-dollars: low, so that a few runs reach them."""

CAPS = {"hour": HOUR_CAP, "day": DAY_CAP, "month": MONTH_CAP}

Query = Callable[..., Sequence[Any]]
"""Runs a query with named values and returns the rows."""


def format_instant(at: datetime) -> str:
    """An instant as the database writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def find_windows(now: datetime) -> dict[str, datetime]:
    """Where each window begins; local time is UTC here."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return {"hour": now - timedelta(hours=1), "day": midnight, "month": midnight.replace(day=1)}


def read_spent(query: Query, now: datetime) -> dict[str, int]:
    """Micro-dollars in each window: what is settled there, and all that is reserved."""
    amounts = {}
    for window, begin in find_windows(now).items():
        [(amount,)] = query(
            "SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries"
            " WHERE state = 'reserved' OR (state = 'settled' AND at >= :begin)",
            begin=format_instant(begin),
        )
        amounts[window] = int(amount)
    return amounts


def is_within_caps(before: dict[str, int], amount: int) -> bool:
    """Whether `amount` more micro-dollars stay within every cap."""
    return all(before[window] + amount <= cap for window, cap in CAPS.items())


@dataclass(frozen=True)
class Passed:
    """A trigger that every rail let through."""

    number: int
    at: datetime
    after: str
    """The channel that it came from."""
    channel: str
    unattended: bool
    estimate: int
    """Micro-dollars."""


def read_passed(query: Query) -> list[Passed]:
    """All triggers that passed, oldest first."""
    rows = query(
        "SELECT id, created_at, from_channel, target_channel, unattended, cost_estimate"
        " FROM crosspoll_log WHERE NOT blocked AND permit_id IS NOT NULL ORDER BY id"
    )
    return [
        Passed(number, datetime.fromisoformat(at), after, channel, bool(unattended), round(cost * 1_000_000))
        for number, at, after, channel, unattended, cost in rows
    ]


def find_loop(links: Sequence[Passed], last: Passed) -> str:
    """The loop that `last` closed after `links`; "" for none (SPEC 3.3)."""
    if last.after == "owner":
        return ""

    def count(after: str, channel: str, within: timedelta) -> int:
        """How many links lead from one channel to the other, so short a time ago."""
        return sum((link.after, link.channel) == (after, channel) and last.at - link.at < within for link in links)

    if count(last.channel, last.after, timedelta(minutes=5)):
        return "reverse"
    if count(last.after, last.channel, timedelta(minutes=10)) >= 2:
        return "pair"
    chain = [last.channel, last.after]
    for link in reversed(links[-50:]):
        if link.channel == chain[-1]:
            if link.after == "owner":
                break
            chain.append(link.after)
    return "depth" if len(chain) > 3 else ""


def compute_bound(approved: int, decided: int, z: float = 1.645) -> float:
    """Wilson's lower bound of the share of approvals; `z` is for 95 % on one side."""
    if decided == 0:
        return 0.0
    share, weight = approved / decided, z * z / decided
    return (share + weight / 2 - z * sqrt(share * (1 - share) / decided + weight / (4 * decided))) / (1 + weight)
