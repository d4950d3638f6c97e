"""The rules of the rails, computed a second time: from raw rows and plain arithmetic, not by the code under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import sqrt
from typing import Any

HOUR_CAP, DAY_CAP, MONTH_CAP = 1_500_000, 4_000_000, 9_000_000
"""The caps of these tests, in micro-dollars: low, so that a few runs reach them."""
CAPS = {"hour": HOUR_CAP, "day": DAY_CAP, "month": MONTH_CAP}

Ask = Callable[..., list[Any]]
"""Runs a query with named values and gives the rows."""


def stamp(at: datetime) -> str:
    """An instant as the database writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def windows(now: datetime) -> dict[str, datetime]:
    """Where each window begins; local time is UTC here."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return {"hour": now - timedelta(hours=1), "day": midnight, "month": midnight.replace(day=1)}


def spent(ask: Ask, now: datetime) -> dict[str, int]:
    """Settled plus reserved in each window."""
    return {
        window: int(
            ask(
                "SELECT coalesce(sum(amount_microusd), 0) FROM cost_entries"
                " WHERE state = 'reserved' OR (state = 'settled' AND at >= :begin)",
                begin=stamp(begin),
            )[0][0]
        )
        for window, begin in windows(now).items()
    }


def fits(before: dict[str, int], amount: int) -> bool:
    """Whether `amount` more passes no cap."""
    return all(before[window] + amount <= cap for window, cap in CAPS.items())


@dataclass(frozen=True)
class Passed:
    """A trigger that every rail let through."""

    number: int
    at: datetime
    after: str
    channel: str
    unattended: bool
    estimate: int
    type: str


def passed(ask: Ask) -> list[Passed]:
    """All of them, oldest first."""
    rows = ask(
        "SELECT id, created_at, from_channel, target_channel, unattended, cost_estimate, trigger_type"
        " FROM crosspoll_log WHERE NOT blocked AND permit_id IS NOT NULL ORDER BY id"
    )
    return [
        Passed(number, datetime.fromisoformat(at), after, channel, bool(unattended), round(cost * 1_000_000), kind)
        for number, at, after, channel, unattended, cost, kind in rows
    ]


def loop(links: Sequence[Passed], last: Passed) -> str:
    """Which loop `last` closed, given what went before it; "" for none (SPEC 3.3)."""
    if last.after == "owner":
        return ""
    steps = [(link.after, link.channel, last.at - link.at) for link in links]
    if any((a, b) == (last.channel, last.after) and ago < timedelta(minutes=5) for a, b, ago in steps):
        return "reverse"
    if sum((a, b) == (last.after, last.channel) and ago < timedelta(minutes=10) for a, b, ago in steps) >= 2:
        return "pair"
    chain, at = [last.channel, last.after], last.after
    for a, b, _ in reversed(steps[-50:]):
        if b == at and a == "owner":
            break
        if b == at:
            chain.append(a)
            at = a
    return "depth" if len(chain) > 3 else ""


def bound(approved: int, decided: int, z: float = 1.645) -> float:
    """Wilson's one-sided lower bound, written down once more."""
    if decided == 0:
        return 0.0
    share, weight = approved / decided, z * z / decided
    return (share + weight / 2 - z * sqrt(share * (1 - share) / decided + weight / (4 * decided))) / (1 + weight)
