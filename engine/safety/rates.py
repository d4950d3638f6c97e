"""The rate limiter (SPEC 3.2): at most one trigger in ten minutes that no operator asked for, without bursts."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.model import DecidedBy, RailVerdict, Trigger, TriggerType, Verdict

RAIL = "rate"


def is_by_operator(trigger: Trigger) -> bool:
    """Whether it is an operator's own approval, at the console, by a verb or over the API (SPEC 3.2).

    Both marks must agree: nothing that runs by itself becomes an approval by carrying one of them.
    """
    return trigger.type is TriggerType.MANUAL and trigger.decided_by in (DecidedBy.OPERATOR, DecidedBy.API)


def decide_rate(trigger: Trigger, last: datetime | None, now: datetime, interval: timedelta) -> RailVerdict:
    """Block a trigger that comes less than `interval` after `last`, the last one that was let through.

    `last` counts only triggers that no operator approved. Exactly `interval` later is late enough. A `last` in the
    future (the clock was set back) blocks until `interval` after it: the rail fails closed.
    """
    if is_by_operator(trigger):
        return RailVerdict(RAIL, Verdict.ALLOW, "what you approve is not rate-limited")
    if trigger.force:
        return RailVerdict(RAIL, Verdict.ALLOW, "forced: the rate limit was skipped", "force")
    if last is None:
        return RailVerdict(RAIL, Verdict.ALLOW, "nothing was triggered before")
    wait = interval - (now - last)
    if wait > timedelta(0):
        return RailVerdict(
            RAIL,
            Verdict.BLOCK,
            f"the last trigger was at {last:%H:%M:%S} UTC; the next is allowed in {_words(wait)}",
            "interval",
        )
    return RailVerdict(RAIL, Verdict.ALLOW, f"more than {_words(interval)} since the last trigger")


def _words(span: timedelta) -> str:
    seconds = max(1, round(span.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{-(-seconds // 60)} min"
