"""Proposals and cards (SPEC 2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

from engine.frozen import frozen
from engine.model.rails import NO_SANDBOX, SANDBOX_WAIVED, Assignment, DecidedBy, RailVerdict, Verdict


class Status(StrEnum):
    """Where a card stands (SPEC 2.7); sent and shown as stored."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    EXECUTED = "executed"


class Outcome(StrEnum):
    """How a decided card ended (SPEC 2.7)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANNOT_RUN = "cannot_run"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    WITHDRAWN = "withdrawn"
    DISCARDED = "discarded"  # the operator threw away what came of it


class DismissReason(StrEnum):
    """The reason that the operator gave for dismissing a card (SPEC 2.9)."""

    NOT_NOW = "not-now"
    WRONG = "wrong"
    ALREADY_DONE = "already-done"
    NEVER_HERE = "never-here"  # this kind, in this workspace
    NEVER_ANYWHERE = "never-anywhere"  # this kind, in every workspace


@frozen
class Mute:
    """What stays away because the operator dismissed it (SPEC 2.9).

    `subject` "" is the whole kind, `workspace` "" is everywhere. `until` None is until it is lifted. `dismissals` is
    how many led to it, `at` the last of them with its `reason`; `card` is the card that was dismissed last, `prompt`
    what it said.
    """

    id: str
    kind: str
    workspace: str
    subject: str
    dismissals: int
    at: datetime
    until: datetime | None
    reason: DismissReason | None = None
    card: str = ""
    prompt: str = ""
    tier: int = 1
    """The lowest tier of the cards that were dismissed: only a rise to tier 1 brings the subject back earlier."""

    @property
    def why(self) -> str:
        """Why, in words."""
        match self.reason:
            case DismissReason.NEVER_HERE if not self.subject:
                return "you said never here"
            case DismissReason.NEVER_ANYWHERE if not self.subject:
                return "you said never anywhere"
        times = {1: "once", 2: "twice"}.get(self.dismissals, f"{self.dismissals} times")
        reason = f", most recently as “{self.reason.value.replace('-', ' ')}”" if self.reason else ""
        return f"dismissed {times}{reason}"


class Source(StrEnum):
    """What made a card (SPEC 2.7)."""

    TEMPLATE = "template"
    TWIN_MODEL = "twin-model"
    PREDICTOR_HOOK = "predictor-hook"
    EMBEDDED_TWIN = "embedded-twin"
    OPERATOR = "operator"
    FOLLOW_UP = "follow-up"


COLD_START = 0.4
"""The confidence of every prediction in phase 0, which states nothing (SPEC 2.6)."""


class Tier(IntEnum):
    """What happens when nobody acts on a card: the first thing the stack is sorted by (SPEC 2.11)."""

    BROKEN = 1  # something is broken or about to be lost
    BLOCKS = 2  # it blocks you or others soon
    CHECK = 3  # a quick check of recent work
    UPKEEP = 4

    @property
    def word(self) -> str:
        """The word that stands on a card while no confidence is stated."""
        return {1: "at risk", 2: "blocks soon", 3: "quick check", 4: "upkeep"}[self]

    @property
    def meaning(self) -> str:
        """What the word means, as the rest of a sentence."""
        return {
            1: "something is broken or about to be lost",
            2: "it blocks you or others soon",
            3: "a quick check of recent work",
            4: "it can wait; a workspace has at most one such card",
        }[self]


class Band(StrEnum):
    """What a confidence means (SPEC 2.5)."""

    DISCARDED = "discarded"  # [0, 0.3)
    CARD = "card"  # [0.3, 0.6)
    SUGGESTED = "suggested"  # [0.6, 0.8)
    ACT = "act"  # [0.8, 1]


@frozen
class Signal:
    """What one collector found (SPEC 2.1): relevance in [0, 1], its weight in the sum, evidence in words."""

    name: str
    weight: float
    relevance: float
    evidence: tuple[str, ...] = ()
    error: str = ""

    @property
    def share(self) -> float:
        """weight x relevance: what it adds to the ranking."""
        return self.weight * self.relevance


FEW_DECISIONS = 8
"""With fewer decisions on a kind of card its confidence is said to rest on few."""


CONFIDENCE_WEIGHTS: Mapping[str, float] = {"twin": 0.4, "pattern": 0.25, "urgency": 0.2, "time": 0.15}
"""The terms of the confidence and their weights, which sum to 1 (SPEC 2.5)."""


@frozen
class ConfidenceParts:
    """The four terms of SPEC 2.5, each in [0, 1], before weighting; `total` is what bands use. `stated` is False in
    phase 0, where the total is fixed and says nothing (SPEC 2.6). `decided` is how many cards of the kind you had
    decided on, None where that was not kept."""

    twin: float
    pattern: float
    urgency: float
    time: float
    total: float
    words: tuple[str, ...] = ()
    stated: bool = False
    decided: int | None = None

    @property
    def weighted(self) -> float:
        """The weighted sum of the terms before calibration, in [0, 1]."""
        return min(sum(weight * float(getattr(self, term)) for term, weight in CONFIDENCE_WEIGHTS.items()), 1.0)

    @property
    def few(self) -> bool:
        """Whether so few decisions stand behind the total that it can be far off."""
        return self.decided is not None and self.decided < FEW_DECISIONS


@dataclass(frozen=True)
class Proposal:
    """A piece of work that the state of a workspace suggests, before it is a card (SPEC 2.1, 2.3c).

    `subject` is what the work is about (a branch, a test, a file, a tag): it stays the same while facts move on, and a
    dismissal is remembered by it (SPEC 2.9). Free text goes in as a mark of its words (`engine.model.text.mark`).
    `facts` identify the evidence: same workspace, kind and facts = same fingerprint. New facts are a reason to ask
    again about work that was done, not about a subject that was dismissed.
    `evidence_at` is when the evidence arose, `usual_hours` how long the like usually waits: urgency (SPEC 2.5).
    `channel` is the task's channel affinity, "" if it has none.
    """

    kind: str
    workspace: str
    prompt: str
    reasoning: str
    subject: str
    facts: Mapping[str, Any]
    flow: str | None
    tier: Tier = Tier.CHECK
    parameters: Mapping[str, Any] = field(default_factory=dict)
    channel: str = ""
    evidence_at: datetime | None = None
    usual_hours: float = 24.0
    signals: tuple[Signal, ...] = ()
    source: Source = Source.TEMPLATE
    task_id: str | None = None
    confidence: float | None = None
    """What its source says of it, in [0, 1]: the Twin's term of the sum and no more (SPEC 2.8); None says nothing."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex, 32 characters) over workspace, kind, tier and facts."""
        text = json.dumps([self.workspace, self.kind, self.tier, dict(self.facts)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def about(self) -> tuple[str, str, str]:
        """See `Card.about`."""
        return self.workspace, self.kind, self.subject


def is_expired(expires_at: datetime, snoozed_until: datetime | None, now: datetime) -> bool:
    """Whether a card's time is over; a snoozed card does not expire."""
    return expires_at <= now and not (snoozed_until is not None and snoozed_until > now)


@frozen
class Card:
    """A prediction as the operator sees it. Names follow SPEC 9.8 where they leave the engine."""

    id: str
    kind: str
    tier: Tier
    assignment: Assignment
    agent: str
    confidence: float
    band: Band
    parts: ConfidenceParts | None
    reasoning: str
    status: Status
    source: Source
    created_at: datetime
    expires_at: datetime
    signals: tuple[Signal, ...] = ()
    verdicts: tuple[RailVerdict, ...] = ()
    estimate: int = 0
    check_only: bool = True
    undo_note: str = ""
    served: str = ""
    novel: bool = False
    snoozed_until: datetime | None = None
    shown_at: datetime | None = None
    decided_by: DecidedBy | None = None
    decided_at: datetime | None = None
    outcome: Outcome | None = None
    session_id: str | None = None
    task_id: str | None = None
    note: str = ""
    subject: str = ""
    fingerprint: str = ""
    evidence_at: datetime | None = None
    """When what it is about arose, None where that cannot be told."""

    @property
    def workspace(self) -> str:
        """The workspace that it is about."""
        return self.assignment.workspace

    @property
    def about(self) -> tuple[str, str, str]:
        """What it is about: of cards about the same only one is pending."""
        return self.workspace, self.kind, self.subject

    @property
    def stated(self) -> bool:
        """Whether `confidence` says anything: not before phase 1 (SPEC 2.6), and not on a prompt of your own."""
        return self.parts is not None and self.parts.stated and self.source is not Source.OPERATOR

    @property
    def tier_word(self) -> str:
        """The word of its tier; `yours` on a prompt of your own."""
        return "yours" if self.source is Source.OPERATOR else self.tier.word

    @property
    def how_sure(self) -> str:
        """`72%`, and while no confidence is stated the word of its tier."""
        return f"{round(self.confidence * 100)}%" if self.stated else self.tier_word

    def is_expired(self, now: datetime) -> bool:
        """True when its time is over; a snoozed card does not expire."""
        return is_expired(self.expires_at, self.snoozed_until, now)

    def snoozed(self, now: datetime) -> bool:
        """True until the instant its snooze ends."""
        return self.snoozed_until is not None and self.snoozed_until > now

    @property
    def asks(self) -> bool:
        """True when the content filter asks for a person and the card says so (SPEC 3.5)."""
        return any(verdict.rail == "content" and verdict.verdict is Verdict.ASK for verdict in self.verdicts)

    @property
    def without_sandbox(self) -> bool:
        """True when no sandbox works on this machine, so that nothing confines what this would run."""
        return self.needs_confirmation or self._broke(SANDBOX_WAIVED)

    @property
    def needs_confirmation(self) -> bool:
        """True when the operator must confirm, at each approval, that it runs without a sandbox."""
        return self._broke(NO_SANDBOX)

    def _broke(self, rule: str) -> bool:
        return any(verdict.rail == "gate" and rule in verdict.rule.split(",") for verdict in self.verdicts)


@frozen
class RunnerInfo:
    """What would carry out an assignment (SPEC 2.7, 3.8, 3.9), asked before a card is shown and before it is approved.

    `available` is False when no runner does; `reason` then says which one is missing. `estimate` in micro-dollars.
    `executor` names the model or the agent that does it, "" for a flow, and `learned_commands` tells what a learned
    flow runs; `hosts` is what it itself needs of the network, beyond what the workspace allows its commands. `is_free`:
    nobody sends a bill for it: a flow, or a model on this machine.
    """

    available: bool
    reason: str = ""
    check_only: bool = True
    undo_note: str = ""
    sandbox: str = ""
    estimate: int = 0
    hosts: tuple[str, ...] = ()
    executor: str = ""
    is_free: bool = False
    learned_commands: str = ""

    @property
    def consent_text(self) -> str:
        """Who does it and what it reaches beyond this machine, in words, of a learned flow what it runs, "" for any
        other flow: a card shows it, and who approves the card agrees to it."""
        if not self.executor:
            return self.learned_commands
        return (
            f"{self.executor}; network: {', '.join(self.hosts)} for it alone"
            if self.hosts
            else f"{self.executor}; no network"
        )


@frozen
class CycleReport:
    """What a prediction cycle did. `withdrawn` are ids of cards, `errors` words, `seconds` wall time.

    `fresh` is False for who came while the cycle was running and got its report.
    """

    created: tuple[Card, ...] = ()
    withdrawn: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
    fresh: bool = True
