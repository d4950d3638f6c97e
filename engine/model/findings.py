"""Findings that agents send up to their leaders: scores, gates, and what became of each (SPEC 1.7, 1.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from engine.frozen import frozen
from engine.model.trust import Trust, may_guide


@frozen
class Score:
    """A number from 0 to 1 and the reasons for it, in words."""

    value: float
    reasons: tuple[str, ...]


@frozen
class Learning:
    """A finding of an agent. `id` is the same whenever it is offered again; `category` is a list of words."""

    id: str
    text: str
    category: str
    agent: str
    session: str
    confidence: Score
    importance: Score
    evidence: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust = Trust.QUOTED


@frozen
class AcceptedFinding:
    """A finding of a workspace that is a pattern of a leader now: its agent and session, and when it went up."""

    text: str
    leader: str
    pattern: str
    agent: str
    session: str
    at: datetime


class BubbleState(StrEnum):
    """The state of a finding on its way up."""

    QUEUED = "queued"
    REFUSED = "refused"
    FLUSHED = "flushed"


@frozen
class GateResult:
    """The result of one gate of SPEC 1.7."""

    number: int
    name: str
    passed: bool
    reason: str


@frozen
class Bubble:
    """A finding on its way to the direct leader. `gates` are those that were asked, in order; if it was refused, by the
    last. `pattern` is the key of the pattern that it became."""

    id: str
    learning: Learning
    leader: str
    state: BubbleState
    gates: tuple[GateResult, ...]
    at: datetime
    flushed_at: datetime | None = None
    pattern: str = ""
    approved_at: datetime | None = None

    @property
    def may_guide(self) -> bool:
        """Whether it may become a pattern: quotes need the operator's approval."""
        return may_guide(self.learning.trust, approved=self.approved_at is not None)

    @property
    def refused_by(self) -> GateResult | None:
        """The gate that refused it, None if none did."""
        return next((gate for gate in self.gates if not gate.passed), None)


@frozen
class FlushReport:
    """The result of a flush: by leader, the findings that became patterns; the number that wait; the error, if any."""

    flushed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: int = 0
    failed: str = ""
