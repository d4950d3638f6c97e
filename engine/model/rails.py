"""Requests to execute, the pipeline's decision on them (SPEC 3.1), and the state of the rails as screens and verbs show
it (9.1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.frozen import frozen

# -- requests and decisions


class DecidedBy(StrEnum):
    """Who decided a card."""

    OPERATOR = "operator"
    AUTONOMY = "autonomy"
    API = "api"


def decider(decided_by: str) -> str:
    """Who decided: you, the engine by itself, or a program."""
    return {"operator": "you", "autonomy": "the engine", "api": "a program"}.get(decided_by, decided_by)


class TriggerType(StrEnum):
    """What asked for an execution (SPEC 2.7, 3.1)."""

    MANUAL = "manual"
    AUTONOMOUS = "autonomous"
    CRON = "cron"
    FOLLOW_UP = "follow-up"
    HEARTBEAT = "heartbeat"


NO_SANDBOX = "no-sandbox"
"""The gate's rule where nothing confines what runs: the operator must confirm that at each approval (SPEC 3.8)."""

SANDBOX_WAIVED = "sandbox-waived"
"""The same where the workspace's settings confirm it once for all approvals."""

ALWAYS_ASKED = frozenset({"prepare_environment", "update_lock"})
"""Flows that need the approval of a person each time: they install what strangers wrote, with network (SPEC 3.6)."""


class Verdict(StrEnum):
    """What a rail says: go on, a person must look, or no (SPEC 3.5)."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


@frozen
class Assignment:
    """Exactly what is to be done; a permit is bound to its digest (SPEC 3.1).

    `flow` names a deterministic flow, or is None for prose that needs a runner which takes prose.
    `parameters` are the flow's, JSON-able; `workspace` is an absolute path. `agent` does it, "" is the channel's own.
    """

    prompt: str
    channel: str
    workspace: str
    runner: str
    flow: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    agent: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over every field; any edit changes it."""
        canonical = json.dumps(
            [self.prompt, self.channel, self.workspace, self.runner, self.flow, dict(self.parameters), self.agent],
            sort_keys=True,
            ensure_ascii=True,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


@frozen
class RailVerdict:
    """One rail's word on one trigger, with its reason in words. `rule` names the rules that apply, with commas."""

    rail: str
    verdict: Verdict
    reason: str
    rule: str = ""

    def applies(self, rule: str) -> bool:
        """Whether this rule is among those that apply."""
        return rule in self.rule.split(",")

    @property
    def asks_about_content(self) -> bool:
        """Whether the content filter asks for a person; approving a card that shows it satisfies it (SPEC 3.5)."""
        return self.rail == "content" and self.verdict is Verdict.ASK


@frozen
class Trigger:
    """A request to execute (SPEC 3.1), as the safety pipeline sees it.

    `acknowledged_digest`: the digest whose `ask` the operator saw before approving, or "".
    `approval_bound`: Wilson's lower bound of the operator's past approval of like cards (SPEC 2.5), 0 if unknown.
    `asked_by`: the program that asks for it, or the channel that it says it works for; "" for the engine and people.
    `ordered`: the operator wrote that it is to run when it is due; of the human gate neither confidence, phase, record
    of like cards nor a NEW pair of channels is asked for.
    `suggested`: an agent or a program asked for this very thing, or it is a task of the board; only a person starts it.
    `without_sandbox`: the operator confirmed, for this one decision, that it may run without a sandbox.
    """

    prediction_id: str
    type: TriggerType
    assignment: Assignment
    agent: str
    confidence: float
    estimate: int
    decided_by: DecidedBy
    from_channel: str = "owner"
    phase: int = 0
    approval_bound: float = 0.0
    acknowledged_digest: str = ""
    force: bool = False
    asked_by: str = ""
    suggested: bool = False
    ordered: bool = False
    without_sandbox: bool = False


@frozen
class Permit:
    """The one thing that lets work start (SPEC 3.1): persisted, single-use, bound to `digest`."""

    id: str
    prediction_id: str
    digest: str
    trigger_type: TriggerType
    issued_at: datetime
    expires_at: datetime


@frozen
class Ruling:
    """The pipeline's decision on a trigger: every rail's verdict in order, and a permit or what blocked it."""

    verdicts: tuple[RailVerdict, ...]
    permit: Permit | None
    blocked_by: RailVerdict | None


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
