"""Proposals and cards (SPEC 2), with their tiers, confidences and outcomes, the runners of cards, and the results of
checks.

`engine.prediction` makes cards of proposals, and the console and verbs show them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

from engine.frozen import frozen
from engine.model.rails import Assignment, DecidedBy, GateRuleName, RailVerdict
from engine.text import hex_hash, one_line

COLD_START_CONFIDENCE = 0.4
"""The confidence of every card in phase 0, which states nothing (SPEC 2.6)."""

ENOUGH_DECISIONS = 8
"""With fewer decisions on a kind, its confidence is marked as based on few decisions."""

CONFIDENCE_WEIGHTS: Mapping[str, float] = {"twin": 0.4, "pattern": 0.25, "urgency": 0.2, "time": 0.15}
"""The terms of the confidence and their weights, which sum to 1 (SPEC 2.5)."""

ALREADY_REVIEWED = "already_reviewed"
"""The code of the refusal of a review that would find exactly what the last one found."""


# -- states and tiers


class Status(StrEnum):
    """The status of a card (SPEC 2.7). The values are the words of stored rows and JSON."""

    PENDING = "pending"
    APPROVED = "confirmed"
    DISMISSED = "rejected"
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
    DISCARDED = "discarded"  # the operator discarded its changes


class DismissReason(StrEnum):
    """The reason that the operator gave for dismissing a card (SPEC 2.9)."""

    NOT_NOW = "not-now"
    WRONG = "wrong"
    ALREADY_DONE = "already-done"
    NEVER_HERE = "never-here"  # this kind, in this workspace
    NEVER_ANYWHERE = "never-anywhere"  # this kind, in every workspace


class Source(StrEnum):
    """The source of a card (SPEC 2.7)."""

    TEMPLATE = "template"
    TWIN_MODEL = "twin-model"
    PREDICTOR_HOOK = "predictor-hook"
    EMBEDDED_TWIN = "embedded-twin"
    OPERATOR = "operator"
    FOLLOW_UP = "follow-up"


class Tier(IntEnum):
    """The consequence if nobody acts on a card, by which the stack is sorted first (SPEC 2.11)."""

    AT_RISK = 1  # something is broken or about to be lost
    BLOCKS = 2  # it blocks you or others soon
    CHECK = 3  # a quick check of recent work
    UPKEEP = 4

    @property
    def word(self) -> str:
        """The word that a card shows: at risk, blocks, check or upkeep. Lists have it in capitals."""
        return self.name.lower().replace("_", " ")

    @property
    def meaning(self) -> str:
        """The meaning of the word, as the rest of a sentence."""
        return {
            1: "something is broken or about to be lost",
            2: "it blocks you or others soon",
            3: "a quick check of recent work",
            4: "it can wait; a workspace has at most one such card",
        }[self]


class Band(StrEnum):
    """A range of confidence (SPEC 2.5)."""

    DISCARDED = "discarded"  # [0, 0.3)
    CARD = "card"  # [0.3, 0.6)
    SUGGESTED = "suggested"  # [0.6, 0.8)
    ACT = "act"  # [0.8, 1]


# -- confidence


@frozen
class Signal:
    """The result of one collector (SPEC 2.1): relevance in [0, 1], its weight in the sum, evidence in words."""

    name: str
    weight: float
    relevance: float
    evidence: tuple[str, ...] = ()
    error: str = ""

    @property
    def share(self) -> float:
        """weight x relevance: what it adds to the ranking."""
        return self.weight * self.relevance


@frozen
class ConfidenceParts:
    """The four terms of SPEC 2.5, each in [0, 1], before weighting, and the `total` after calibration. `stated` is
    False in phase 0, where the total is fixed (SPEC 2.6). `decided` is the number of decisions on the kind, None if
    unknown."""

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
    def has_few_decisions(self) -> bool:
        """Whether the total is based on few decisions, so it can be far off."""
        return self.decided is not None and self.decided < ENOUGH_DECISIONS


# -- proposals and cards


@dataclass(frozen=True)
class Proposal:
    """A piece of work that the state of a workspace suggests, before it is a card (SPEC 2.1, 2.3c)."""

    kind: str
    workspace: str
    prompt: str
    reasoning: str
    subject: str
    """The subject of the work (a branch, a test, a file, a tag). It stays the same while facts change; a mute is about
    it (SPEC 2.9). For free text it is a hash of the words (`engine.text.compute_text_hash`)."""
    facts: Mapping[str, Any]
    """The evidence: the same workspace, kind and facts have the same fingerprint. New facts allow a new card about work
    that was done, but not about a subject that was dismissed."""
    flow: str | None
    tier: Tier = Tier.CHECK
    parameters: Mapping[str, Any] = field(default_factory=dict)
    channel: str = ""
    """The channel of its kind, "" for none."""
    evidence_at: datetime | None = None
    """The time of the evidence."""
    usual_hours: float = 24.0
    """Number of hours that such cards usually wait, from which the urgency follows (SPEC 2.5)."""
    signals: tuple[Signal, ...] = ()
    source: Source = Source.TEMPLATE
    task_id: str | None = None
    confidence: float | None = None
    """The confidence that its source states, in [0, 1], which replaces only the Twin's term (SPEC 2.8)."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex, 32 characters) over workspace, kind, tier and facts."""
        text = json.dumps([self.workspace, self.kind, self.tier, dict(self.facts)], sort_keys=True, default=str)
        return hex_hash(text, 32)

    @property
    def about(self) -> tuple[str, str, str]:
        """See `Card.about`."""
        return self.workspace, self.kind, self.subject


def is_expired(expires_at: datetime, snoozed_until: datetime | None, now: datetime) -> bool:
    """Whether a card's time is over; a snoozed card does not expire."""
    return expires_at <= now and not (snoozed_until is not None and snoozed_until > now)


NO_SANDBOX_WARNING = "no sandbox on this machine"
"""The warning on a card whose commands would run unconfined."""


@frozen
class Card:
    """A card as the operator sees it. Names follow SPEC 9.8 where they leave the engine."""

    id: str
    kind: str
    tier: Tier
    assignment: Assignment
    agent: str
    """The agent that does the work."""
    confidence: float
    """In [0, 1]. It is an estimate only with `has_stated_confidence`."""
    band: Band
    parts: ConfidenceParts | None
    """The parts of its confidence, None if nothing estimated it."""
    reasoning: str
    """The evidence in words."""
    status: Status
    source: Source
    created_at: datetime
    expires_at: datetime
    signals: tuple[Signal, ...] = ()
    verdicts: tuple[RailVerdict, ...] = ()
    """The verdicts of the rails when they were last asked."""
    estimate: int = 0
    """Estimated cost in micro-dollars."""
    check_only: bool = True
    """Whether it is read-only."""
    work: str = ""
    """What sort of work it is: `tests`, or the channel where no flow does it."""
    changes: str = ""
    """What it changes: `read-only`, `you land the changes`, `makes a branch`."""
    undo_note: str = ""
    """How to undo it; "" if nothing can run it."""
    gives_change_set: bool = True
    """Whether its changes wait until they are landed. An undo of the card then undoes their landing; for other changes,
    `undo_note` says what to do."""
    consent_text: str = ""
    """See `RunnerInfo.consent_text`."""
    has_novel_pair: bool = False
    """Whether no work between its channels has passed yet (SPEC 3.6), so that it has the badge NEW."""
    can_run: bool = False
    """Whether a runner could run it when it was last read. If not, `note` says what is missing."""
    snoozed_until: datetime | None = None
    shown_at: datetime | None = None
    """The time when the operator first saw it."""
    decided_by: DecidedBy | None = None
    decided_at: datetime | None = None
    outcome: Outcome | None = None
    session_id: str | None = None
    task_id: str | None = None
    note: str = ""
    """What is missing to run it, or why its last approval had no effect."""
    subject: str = ""
    """See `Proposal.subject`."""
    fingerprint: str = ""
    """See `Proposal.fingerprint`."""
    evidence_at: datetime | None = None
    """The time of its evidence, None for unknown."""

    @property
    def workspace(self) -> str:
        """The workspace that it is about."""
        return self.assignment.workspace

    @property
    def about(self) -> tuple[str, str, str]:
        """(workspace, kind, subject); only one card is pending for each."""
        return self.workspace, self.kind, self.subject

    @property
    def has_stated_confidence(self) -> bool:
        """Whether `confidence` is an estimate: from phase 1 on (SPEC 2.6), and not for the operator's own prompt."""
        return self.parts is not None and self.parts.stated and self.source is not Source.OPERATOR

    @property
    def tier_word(self) -> str:
        """The word of its tier; `yours` for the operator's own prompt."""
        return "yours" if self.source is Source.OPERATOR else self.tier.word

    @property
    def confidence_text(self) -> str:
        """`72%`, or the word of its tier while no confidence is stated."""
        return f"{round(self.confidence * 100)}%" if self.has_stated_confidence else self.tier_word

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over; a snoozed card does not expire."""
        return is_expired(self.expires_at, self.snoozed_until, now)

    def is_snoozed(self, now: datetime) -> bool:
        """Whether it is snoozed, until the instant its snooze ends."""
        return self.snoozed_until is not None and self.snoozed_until > now

    @property
    def blocking_verdict(self) -> RailVerdict | None:
        """The first rail that would block it now."""
        return next((verdict for verdict in self.verdicts if verdict.blocks), None)

    @property
    def rail_risk(self) -> str:
        """What a rail says of its risk: the content filter asks, or it touches production; "" for none."""
        for verdict in self.verdicts:
            if verdict.asks_about_content:
                return one_line(verdict.reason)
            if GateRuleName.PRODUCTION in verdict.rules:
                reasons = (reason for reason in verdict.reasons if "production" in reason)
                return one_line(next(reasons, verdict.reason))
        return ""

    @property
    def approval_risk(self) -> str:
        """Why approving it needs a second, distinct key: no sandbox works here, or `rail_risk`; "" where it needs
        none."""
        return "; ".join(filter(None, (NO_SANDBOX_WARNING if self.needs_confirmation else "", self.rail_risk)))

    @property
    def asks_about_content(self) -> bool:
        """Whether the content filter asks for a person, which the card shows (SPEC 3.5)."""
        return any(verdict.asks_about_content for verdict in self.verdicts)

    @property
    def without_sandbox(self) -> bool:
        """Whether no sandbox works on this machine, so that its commands would run unconfined."""
        return self.needs_confirmation or self._has_gate_rule(GateRuleName.SANDBOX_WAIVED)

    @property
    def needs_confirmation(self) -> bool:
        """Whether the operator must confirm, at each approval, that it runs without a sandbox."""
        return self._has_gate_rule(GateRuleName.NO_SANDBOX)

    def _has_gate_rule(self, rule: GateRuleName) -> bool:
        return any(verdict.rail == "gate" and rule in verdict.rules for verdict in self.verdicts)


# -- runners and cycles


@frozen
class RunnerInfo:
    """The runner of an assignment (SPEC 2.7, 3.8, 3.9), read before a card is shown and before it is approved."""

    available: bool
    reason: str = ""
    """Which runner is missing, if it is not available."""
    check_only: bool = True
    runs_commands: bool = True
    undo_note: str = ""
    sandbox: str = ""
    estimate: int = 0
    """Estimated cost in micro-dollars."""
    hosts: tuple[str, ...] = ()
    """Hosts that the runner itself needs, beyond those that the workspace allows its commands."""
    executor: str = ""
    """The model or agent, "" for a flow."""
    is_free: bool = False
    """Whether it costs nothing: a flow, or a model on this machine."""
    learned_commands: str = ""
    """The commands of a learned flow."""

    @property
    def consent_text(self) -> str:
        """The executor and its hosts in words, or the commands of a learned flow; "" for any other flow. A card shows
        it, and its approval covers it."""
        if not self.executor:
            return self.learned_commands
        network = f"network: {', '.join(self.hosts)} for it alone" if self.hosts else "no hosts of its own"
        return f"{self.executor}; {network}"


@frozen
class FlowForm:
    """The form of a prompt that runs a flow: its name, then `key=value` for its parameters. `parameters` are (key,
    meaning, whether it is required)."""

    name: str
    title: str
    parameters: tuple[tuple[str, str, bool], ...] = ()


@frozen
class CheckReport:
    """The result of a check. `withdrawn` are ids of cards, `seconds` is wall time."""

    created: tuple[Card, ...] = ()
    withdrawn: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    seconds: float = 0.0
