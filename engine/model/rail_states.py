"""The present states of the rails, as screens show them: costs, chains of channels, stops, decisions (SPEC 3)."""

from __future__ import annotations

from datetime import datetime

from engine.frozen import frozen
from engine.model.rails import RailVerdict, TriggerType, Verdict


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
    """The state of one rail: its present verdict on work that nobody approved and that no other rule stops, and in
    `last` its verdict at the newest decision.

    `brief` is the verdict in about 8 characters, `reason` the sentence. `until` is the time when the rate limiter
    allows work again, or when a pause ends. `stopped` is the number of decisions in the last 24 hours in which this
    rail was the first that did not allow.
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
    """The spending in one cost window (SPEC 3.4), in micro-dollars. `window` is `hour` (sliding), `day` or `month`.

    `spent` is the sum of settled prices, `reserved` the sum of reservations. `buckets` are the settled prices from
    `begin` to `end` in equal steps (5 minutes, an hour, a day), oldest first. `elapsed` of them have begun; the others
    are 0. `pace` is the recent spending an hour. `reached_at` is the time when `spent` plus `reserved` reach the cap at
    that pace, None if the window ends first.
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
    """A link of the loop detector (SPEC 3.3). `depth` is the number of channels in the chain up to this link, `runs`
    the number of runs of this pair in the last 10 minutes. `answer_until` is the time until which the reverse link is
    blocked, None if it is not.
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

    `thrown` says whether it stops the engine now, `words` describes its state, and `how_to_end` says how to
    end the stop.
    """

    name: str
    thrown: bool
    words: str
    how_to_end: str


@frozen
class LogEntry:
    """One decision of the rails. `estimate` is in micro-dollars.

    `allowed_once` says that the operator allowed one run of exactly this, and that it did not run since.
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
    allowed_once: bool = False
