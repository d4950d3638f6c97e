"""Requests to run work, the decisions of the safety pipeline on them, and the present states of the rails (SPEC 3).

`engine.safety` asks the rails; the safety screen and `clawpy status` show the states.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.model.base import hex_hash

_SANDBOX_FIXES = {"linux": "install bubblewrap", "darwin": "start clawpy outside of other sandboxes"}
SANDBOX_FIX = _SANDBOX_FIXES.get(sys.platform, "run clawpy on Linux or macOS")
"""How to get a sandbox on this machine."""

ALWAYS_ASKED = frozenset({"prepare_environment", "update_lock"})
"""Flows that need a person's approval each time, because they install foreign packages from the network (SPEC 3.6)."""

FAULT = "fault"
"""The rule of a rail that raised an error."""

UNREGISTERED_CHANNEL = "unregistered-channel"
"""The rule of the content rail against a channel that the settings do not have."""

ALLOWED_ONCE = "allowed once: "
"""Begins the reason of a content verdict that is no block any more, because the operator allowed the work once."""

REASON_SEPARATOR = "; "
"""Stands between the reasons of a rail of which several rules apply."""


# -- decisions and rules


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


class AutonomyState(StrEnum):
    """How far the engine acts by itself (SPEC 7.1), in the order in which it usually gets there."""

    DISABLED = "DISABLED"
    WATCHING = "WATCHING"
    PRIMING = "PRIMING"
    AUTONOMOUS = "AUTONOMOUS"
    PAUSED = "PAUSED"


ABSENCE = timedelta(minutes=30)
"""After this time without input the operator was away, and is told what happened meanwhile (SPEC 9.3)."""

MAX_REJECTIONS = 3
"""Number of dismissals in a row after which the engine pauses, and runs nothing by itself (SPEC 3.6, 7.1)."""


class Verdict(StrEnum):
    """The verdict of a rail: allow, ask a person, or block (SPEC 3.5)."""

    ALLOW = "allow"
    ASK = "ask"
    BLOCK = "block"


# -- work and its triggers


@frozen
class Assignment:
    """The exact work of a card. A permit is bound to its digest (SPEC 3.1).

    `flow` is the name of a flow, None for a text prompt, which needs a model or an agent. `parameters` are the JSON
    arguments of the flow. `workspace` is an absolute path. `agent` carries the work out, "" for the agent of the
    channel.
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
        """SHA-256 (hex) over all fields. Any edit changes it."""
        canonical = json.dumps(
            [self.prompt, self.channel, self.workspace, self.runner, self.flow, dict(self.parameters), self.agent],
            sort_keys=True,
            ensure_ascii=True,
        )
        return hex_hash(canonical)


@frozen
class RailVerdict:
    """The verdict of one rail on one trigger, with its reasons in words, the one that matters most first. `rule` has
    the names of the rules that apply, separated by commas."""

    rail: str
    verdict: Verdict
    reason: str
    rule: str = ""

    @property
    def allows(self) -> bool:
        """Whether it has no objection."""
        return self.verdict is Verdict.ALLOW

    @property
    def blocks(self) -> bool:
        """Whether the trigger may not run, whatever the operator says."""
        return self.verdict is Verdict.BLOCK

    def applies(self, rule: str) -> bool:
        """Whether this rule is among those that apply."""
        return rule in self.rule.split(",")

    @property
    def reasons(self) -> list[str]:
        """Its reasons one by one; none if it gives none."""
        return self.reason.split(REASON_SEPARATOR) if self.reason else []

    @property
    def asks_about_content(self) -> bool:
        """Whether the content filter asks for a person. Approving a card that shows this is enough (SPEC 3.5)."""
        return self.rail == "content" and self.verdict is Verdict.ASK

    @property
    def can_be_allowed_once(self) -> bool:
        """Whether this is a block by the content filter that the operator may lift for one run. That is not possible if
        the filter failed, nor for an unknown channel, on which nothing can run (SPEC 2.4)."""
        is_content_block = self.rail == "content" and self.blocks
        return is_content_block and self.rule not in (FAULT, UNREGISTERED_CHANNEL)

    @property
    def is_allowed_once(self) -> bool:
        """Whether the operator allowed once what the content filter blocks."""
        return self.rail == "content" and self.reason.startswith(ALLOWED_ONCE)


@frozen
class Trigger:
    """A request to run an assignment, on which the safety pipeline decides (SPEC 3.1).

    `acknowledged_digest` is the digest whose `ask` the operator saw before approving, or "".
    `approval_bound` is Wilson's lower bound of past approvals of similar cards (SPEC 2.5), 0 if unknown.
    `asked_by` is the program that asks, or the channel for which it says it works; "" for the engine and people.
    `ordered` means that the operator wrote that it should run when it is due. The human gate then does not ask about
    confidence, phase, past approvals or a NEW pair of channels.
    `suggested` means that an agent or a program asked for exactly this work, or that it is a task of the board. Only a
    person may start it.
    `without_sandbox` means that the operator confirmed, for this decision, that it may run without a sandbox.
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
    """A permit, without which no work can start (SPEC 3.1). It is stored, used once, and bound to `digest`."""

    id: str
    prediction_id: str
    digest: str
    trigger_type: TriggerType
    issued_at: datetime
    expires_at: datetime


@frozen
class Ruling:
    """The pipeline's decision on a trigger: the verdicts of all rails in order, and a permit or the verdict that
    blocked."""

    verdicts: tuple[RailVerdict, ...]
    permit: Permit | None
    blocked_by: RailVerdict | None


# -- states of the rails


@frozen
class Hold:
    """A stop or pause of the engine, which lasts until its `word` is resumed (SPEC 3.7). `by` is who placed it. `since`
    is None for `config`: the settings do not say when they were changed."""

    word: str  # "stop", "config", "api", "month", "pause"
    reason: str
    since: datetime | None
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
