"""Requests to run work, the decisions of the safety pipeline on them, and the present states of the rails (SPEC 3); how
far the engine acts by itself (SPEC 7.1).

`engine.safety` asks the rails; the safety screen and `clawpy status` show the states.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.text import hex_hash

# -- work and its triggers


@frozen
class Assignment:
    """The exact work of a card. A permit is bound to its digest (SPEC 3.1)."""

    prompt: str
    channel: str
    workspace: str
    """An absolute path."""
    runner: str
    flow: str | None = None
    """The name of a flow, None for a text prompt, which needs a model or an agent."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The JSON arguments of the flow."""
    agent: str = ""
    """The agent that carries the work out, "" for that of the channel."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over all fields. Any edit changes it."""
        canonical = json.dumps(
            [self.prompt, self.channel, self.workspace, self.runner, self.flow, dict(self.parameters), self.agent],
            sort_keys=True,
            ensure_ascii=True,
        )
        return hex_hash(canonical)


class DecidedBy(StrEnum):
    """Who decided a card."""

    OPERATOR = "operator"
    AUTONOMY = "autonomy"
    API = "api"


def describe_decider(decided_by: str) -> str:
    """Who decided: you, the engine by itself, or a program."""
    return {"operator": "you", "autonomy": "the engine", "api": "a program"}.get(decided_by, decided_by)


class TriggerType(StrEnum):
    """The origin of a trigger (SPEC 2.7, 3.1)."""

    MANUAL = "manual"
    AUTONOMOUS = "autonomous"
    CRON = "cron"
    FOLLOW_UP = "follow-up"
    HEARTBEAT = "heartbeat"


@frozen
class Trigger:
    """A request to run an assignment, on which the safety pipeline decides (SPEC 3.1)."""

    prediction_id: str
    type: TriggerType
    assignment: Assignment
    agent: str
    confidence: float
    estimate: int
    """The estimated cost in micro-dollars."""
    decided_by: DecidedBy
    from_channel: str = "owner"
    phase: int = 0
    """The phase of the Twin (SPEC 2.6)."""
    approval_bound: float = 0.0
    """Wilson's lower bound of past approvals of similar cards (SPEC 2.5), 0 if unknown."""
    acknowledged_digest: str = ""
    """The digest whose `ask` the operator saw before approving, "" for none."""
    is_forced: bool = False
    """Whether the rate limit is skipped."""
    asked_by: str = ""
    """The program that asks, or the channel for which it says it works; "" for the engine and people."""
    is_suggested: bool = False
    """Whether an agent or a program asked for exactly this work, or it is a task of the board. Only a person may start
    it."""
    is_ordered: bool = False
    """Whether the operator wrote that it should run when it is due. The human gate then does not ask about confidence,
    phase, past approvals or a NEW pair of channels."""
    without_sandbox: bool = False
    """Whether the operator confirmed, for this decision, that it may run without a sandbox."""


# -- verdicts and permits

RULE_FAULT = "fault"
"""The rule of a rail that raised an error."""

UNREGISTERED_CHANNEL = "unregistered-channel"
"""The rule of the content rail against a channel that the settings do not have."""


class GateRuleName(StrEnum):
    """The rules of the human gate (SPEC 3.6). `RailVerdict.rule` has these names, and they are stored with it."""

    NO_SANDBOX = "no-sandbox"
    """No sandbox works, and the operator must confirm that at each approval (SPEC 3.8)."""
    SANDBOX_WAIVED = "sandbox-waived"
    """No sandbox works, and the workspace's settings confirm that for all approvals."""
    PRODUCTION = "production"
    CONTENT = "content"
    COSTLY = "costly"
    SUGGESTED = "suggested"
    INSTALLS = "installs"
    AUTONOMY_OFF = "autonomy-off"
    COLD_START = "cold-start"
    ONBOARDING = "onboarding"
    WORKSPACE = "workspace"
    QUIET = "quiet"
    REJECTIONS = "rejections"
    DAY_COST = "day-cost"
    LOW_CONFIDENCE = "low-confidence"
    BELOW_THRESHOLD = "below-threshold"
    TRACK_RECORD = "track-record"
    NOVEL_PAIR = "novel-pair"
    """The NEW badge: no work between these channels has passed yet."""


class Verdict(StrEnum):
    """The verdict of a rail: allow, ask a person, or block (SPEC 3.5)."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


@frozen
class RailVerdict:
    """The verdict of one rail on one trigger, as it is stored and sent to programs: several reasons are one text, and
    so are several rules."""

    rail: str
    verdict: Verdict
    reason: str
    """Its reasons in words, the one that matters most first, see `join_reasons`."""
    rule: str = ""
    """The names of the rules that apply, separated by commas."""

    @property
    def allows(self) -> bool:
        """Whether it has no objection."""
        return self.verdict is Verdict.ALLOW

    @property
    def blocks(self) -> bool:
        """Whether the trigger may not run, whatever the operator says."""
        return self.verdict is Verdict.BLOCK

    @property
    def rules(self) -> list[str]:
        """The names of the rules that apply, one by one."""
        return self.rule.split(",") if self.rule else []

    @property
    def reasons(self) -> list[str]:
        """Its reasons one by one; none if it gives none."""
        return split_reasons(self.reason)

    @property
    def asks_about_content(self) -> bool:
        """Whether the content filter asks for a person. Approving a card that shows this is enough (SPEC 3.5)."""
        return self.rail == "content" and self.verdict is Verdict.ASK

    @property
    def can_be_allowed_once(self) -> bool:
        """Whether this is a block by the content filter that the operator may lift for one run. That is not possible if
        the filter failed, nor for an unknown channel, on which nothing can run (SPEC 2.4)."""
        is_content_block = self.rail == "content" and self.blocks
        return is_content_block and self.rule not in (RULE_FAULT, UNREGISTERED_CHANNEL)

    def allow_once(self, verdict: Verdict) -> RailVerdict:
        """What becomes of a block that the operator allowed once: `verdict`, with the reasons of the block."""
        return replace(self, verdict=verdict, reason=f"{_ALLOWED_ONCE}{self.reason}")

    @property
    def is_allowed_once(self) -> bool:
        """Whether the operator allowed once what the content filter blocks."""
        return self.rail == "content" and self.reason.startswith(_ALLOWED_ONCE)


_ALLOWED_ONCE = "allowed once: "
"""Begins the reason of a verdict that is no block any more, because the operator allowed the work once."""

_REASON_SEPARATOR = "; "


def join_reasons(reasons: Iterable[str]) -> str:
    """Several reasons as one text, which is stored and shown."""
    return _REASON_SEPARATOR.join(reasons)


def split_reasons(text: str) -> list[str]:
    """The reasons in a text of `join_reasons`; none if it is empty."""
    return text.split(_REASON_SEPARATOR) if text else []


@frozen
class Permit:
    """A permit, without which no work can start (SPEC 3.1). It is stored, used once, and bound to `digest`."""

    id: str
    prediction_id: str
    digest: str
    trigger_type: TriggerType
    issued_at: datetime
    expires_at: datetime


@frozen
class Ruling:
    """The pipeline's decision on a trigger: a permit, or the verdict that blocked it."""

    verdicts: tuple[RailVerdict, ...]
    """The verdicts of all rails, in their order."""
    permit: Permit | None
    blocked_by: RailVerdict | None


# -- states of the rails


class HoldKind(StrEnum):
    """The kinds of holds, strictest first. Each is the word that resumes it."""

    STOP = "stop"
    CONFIG = "config"
    """The settings switch everything off."""
    API = "api"
    """The API switched everything off for this run."""
    MONTH = "month"
    """The month's cost cap was reached."""
    PAUSE = "pause"
    """Nothing runs by itself."""


@frozen
class Hold:
    """A stop or pause of the engine, which lasts until its word is resumed (SPEC 3.7)."""

    word: HoldKind
    reason: str
    since: datetime | None
    """None for `config`: the settings do not say when they were changed."""
    until: datetime | None = None
    by: str = field(default="", compare=False)
    """Who placed it."""


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
    """The state of one rail: its present verdict on work that nobody approved and that no other rule stops."""

    rail: str
    verdict: Verdict
    brief: str
    """The verdict in about 8 characters."""
    reason: str
    """The verdict as a sentence."""
    until: datetime | None = None
    """When the rate limiter allows work again, or a pause ends."""
    last: RailVerdict | None = None
    """Its verdict at the newest decision."""
    last_at: datetime | None = None
    stopped_count: int = 0
    """Number of decisions in the last 24 hours in which this rail was the first that did not allow."""


@frozen
class SpendingWindow:
    """The spending in one cost window (SPEC 3.4), in micro-dollars."""

    window: str
    """`hour` (sliding), `day` or `month`."""
    begin: datetime
    end: datetime
    spent: int
    """The sum of settled prices."""
    reserved: int
    """The sum of reservations."""
    cap: int
    buckets: tuple[int, ...]
    """The settled prices from `begin` to `end` in equal steps (5 minutes, an hour, a day), oldest first."""
    elapsed: int
    """Number of buckets that have begun; the others are 0."""
    pace: int
    """The recent spending an hour."""
    reached_at: datetime | None = None
    """When `spent` plus `reserved` reach the cap at that pace, None if the window ends first."""


@frozen
class ChainStep:
    """A link of the loop detector (SPEC 3.3)."""

    from_channel: str
    to_channel: str
    prediction_id: str
    workspace: str
    at: datetime
    depth: int
    """Number of channels in the chain up to this link."""
    runs: int
    """Number of runs of this pair in the last 10 minutes."""
    answer_until: datetime | None = None
    """Until when the reverse link is blocked, None if it is not."""


@frozen
class StopLevel:
    """One of the four levels of the kill switch (SPEC 3.7)."""

    name: str
    """`config`, `api`, `key` or `outside`."""
    is_active: bool
    """Whether it stops the engine now."""
    description: str
    """Its state in words."""
    how_to_end: str
    """How to end the stop."""


@frozen
class RailDecision:
    """One decision of the rails."""

    id: int
    at: datetime
    prediction_id: str
    trigger_type: TriggerType
    channel: str
    from_channel: str
    workspace: str
    prompt: str
    estimate: int
    """In micro-dollars."""
    blocked: bool
    reason: str
    decided_by: str
    verdicts: tuple[RailVerdict, ...]
    allowed_once: bool = False
    """Whether the operator allowed one run of exactly this, and it did not run since."""


# -- how far the engine acts by itself


class AutonomyState(StrEnum):
    """How far the engine acts by itself (SPEC 7.1), in the order in which it usually gets there."""

    DISABLED = "DISABLED"
    WATCHING = "WATCHING"
    PRIMING = "PRIMING"
    AUTONOMOUS = "AUTONOMOUS"
    PAUSED = "PAUSED"


MIN_ABSENCE = timedelta(minutes=30)
"""After this time without input the operator was away, and is told what happened meanwhile (SPEC 9.3)."""

MAX_REJECTIONS = 3
"""Number of dismissals in a row after which the engine pauses, and runs nothing by itself (SPEC 3.6, 7.1)."""
