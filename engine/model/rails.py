"""The state of the rails, as screens and verbs show it (SPEC 9.1)."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime

from engine.frozen import frozen
from engine.model.triggers import RailVerdict, TriggerType, Verdict


@frozen
class Hold:
    """Something that stops or pauses the engine until its own word lifts it (SPEC 3.7). `by` is who placed it."""

    word: str  # "stop", "pause", "month"
    reason: str
    since: datetime
    until: datetime | None = None
    by: str = field(default="", compare=False)


@frozen
class CostState:
    """Settled plus reserved cost in each window, and the caps, all in micro-dollars (SPEC 3.4)."""

    hour: int
    day: int
    month: int
    hour_cap: int
    day_cap: int
    month_cap: int

    @property
    def caps(self) -> dict[str, int]:
        """The cap of each window."""
        return {"hour": self.hour_cap, "day": self.day_cap, "month": self.month_cap}


@frozen
class RailState:
    """One rail: what it says now to work that nobody approved and that has nothing else against it, and what it said
    at the newest decision.

    `brief` is `verdict` in about 8 characters, `reason` the sentence; `until` is when the rate limiter allows again,
    or a pause ends.
    `stopped` counts the decisions of the last 24 hours in which this rail was the first that did not allow.
    """

    rail: str
    verdict: Verdict
    brief: str
    reason: str
    until: datetime | None = None
    last: RailVerdict | None = None
    last_at: datetime | None = None
    stopped: int = 0


@frozen
class Burn:
    """One cost window (SPEC 3.4), money in micro-dollars. `window` is `hour` (sliding), `day` or `month`.

    `spent` is settled, `reserved` set aside by work that is not over; `buckets` are settled prices from `begin` to
    `end` in equal steps (5 minutes, an hour, a day), oldest first, those of the future 0; `elapsed` of them have
    begun. `pace` is micro-dollars an hour of late; `reached_at` is when settled plus reserved come to the cap at that
    pace, None when the window moves on first.
    """

    window: str
    begin: datetime
    end: datetime
    spent: int
    reserved: int
    cap: int
    buckets: tuple[int, ...]
    elapsed: int
    pace: int
    reached_at: datetime | None = None


@frozen
class ChainStep:
    """A link of the loop detector (SPEC 3.3). `depth` counts the channels of the chain up to here, `runs` how often
    this pair ran in the last 10 minutes; `answer_until` is how long the reverse link is blocked, None when it is not.
    """

    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime
    depth: int
    runs: int
    answer_until: datetime | None = None


@frozen
class StopLevel:
    """One of the four levels of the kill switch (SPEC 3.7): `config`, `api`, `key`, `outside`.

    `thrown` says that it stops the engine now, `words` how it stands, `lift` how it is lifted.
    """

    name: str
    thrown: bool
    words: str
    lift: str


@frozen
class LogEntry:
    """One decision of the rails; `estimate` in micro-dollars.

    `lifted` says that the operator allowed exactly this once, and that it did not run since.
    """

    id: int
    at: datetime
    prediction_id: str
    trigger_type: TriggerType
    channel: str
    from_channel: str
    workspace: str
    prompt: str
    estimate: int
    blocked: bool
    reason: str
    decided_by: str
    verdicts: tuple[RailVerdict, ...]
    lifted: bool = False
