"""Values of the hierarchy: leaders' profiles, guidance for agents, and findings on their way up (SPEC 1.5 to 1.10)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.model.agents import PromptLine
from engine.model.base import MICRO
from engine.model.lessons import LESSON, lesson_id
from engine.model.text import count
from engine.model.trust import Trust, may_guide


def telling(key: str) -> bool:
    """Whether the key of a pattern is a name, not the id of a lesson. Pure."""
    return not key.startswith(LESSON)


@frozen
class PatternSource:
    """The finding that a pattern was learnt from: the learning's id, its agent and session."""

    learning: str
    agent: str
    session: str = ""


@frozen
class Pattern:
    """A practice that a leader knows to work. `uses` is the number of prompts that contained it; `at` is the time of
    this version, None for one in `soul.md`. A quote is only a pattern after the operator approved it."""

    key: str
    text: str
    uses: int = 0
    at: datetime | None = None
    last_used: datetime | None = None
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def said(self) -> str:
        """Its text, after its name if it has one."""
        return f"{self.key}: {self.text}" if telling(self.key) else self.text


@frozen
class PatternVersion:
    """One version of a pattern; an empty text means that it was removed. `origin` is the home."""

    key: str
    text: str
    at: datetime
    origin: str
    current: bool
    sources: tuple[PatternSource, ...] = ()


@frozen
class LeaderDecision:
    """A decision that a leader made lately."""

    id: str
    text: str
    at: datetime | None = None
    trust: Trust = Trust.OPERATOR


@frozen
class LeaderProfile:
    """The profile of a leader (SPEC 1.9). Patterns are ordered by use, then newest first."""

    leader: str
    domain: str = ""
    principles: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    guardrails: tuple[str, ...] = ()
    decisions: tuple[LeaderDecision, ...] = ()


@frozen
class ProfileEdit:
    """One change of a profile: a new text of "domain", new items of "principles" or "guardrails", or a new text of the
    pattern or decision with this `key`; without a key it is a new one. An empty value removes it, or restores the
    section from `soul.md`."""

    section: str
    value: str | tuple[str, ...]
    key: str = ""


@frozen
class GuidanceItem:
    """One item of a leader's guidance. `section` is "principles", "patterns", "guardrails" or "recent-decisions";
    `ref`, for example `cto#patterns/api_first`, is the source of its line in a prompt."""

    section: str
    ref: str
    text: str
    tokens: int
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def lesson(self) -> str:
        """The id of its lesson, also after its text was edited."""
        key = self.ref.rpartition("/")[2]
        return lesson_id(self.text) if telling(key) else key

    @property
    def wording(self) -> str:
        """A hash of its text."""
        return hashlib.sha256(self.text.encode(errors="replace")).hexdigest()[:12]


@frozen
class GuidanceHop:
    """One leader of the chain. `share` is the number of tokens it may use, `tokens` what it uses; `why` says why it
    gives no guidance, "" if it does."""

    leader: str
    tier: int
    hop: int
    share: int = 0
    tokens: int = 0
    kept: tuple[GuidanceItem, ...] = ()
    cut: tuple[GuidanceItem, ...] = ()
    why: str = ""


@frozen
class Guidance:
    """The guidance of an agent (SPEC 1.5). `lines` is the block with a source for each line; if it is empty, `reason`
    says why. `chain_end` says in words where the chain of leaders ends."""

    agent: str
    tier: int
    lines: tuple[PromptLine, ...] = ()
    tokens: int = 0
    budget: int = 0
    hops: tuple[GuidanceHop, ...] = ()
    chain: tuple[str, ...] = ()
    chain_end: str = ""
    reason: str = ""

    @property
    def block(self) -> str:
        """The block as it is sent, "" when there is none."""
        return "\n".join(line.text for line in self.lines)

    @property
    def statements(self) -> list[str]:
        """Each item with its leader: `cto, principles: Measure first.`"""
        items = [(hop.leader, item) for hop in self.hops for item in hop.kept]
        return [f"{leader}, {item.section.removeprefix('recent-')}: {item.text}" for leader, item in items]

    @property
    def cut(self) -> int:
        """The number of items left out by the budget."""
        return sum(len(hop.cut) for hop in self.hops)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """The provenance for the record of a call (SPEC 1.10): `bubble_source_ids` are the agents whose findings it
        contains; `guidance_items` are the references of all items, `guidance_wordings` the hashes of their texts."""
        items = [item for hop in self.hops for item in hop.kept]
        return {
            "leadership_chain": list(self.chain),
            "guidance_sources": [hop.leader for hop in self.hops if hop.kept],
            "bubble_source_ids": list(dict.fromkeys(source.agent for item in items for source in item.sources)),
            "guidance_applied": bool(self.lines),
            "guidance_items": [item.ref for item in items],
            "guidance_wordings": [item.wording for item in items],
            "guidance_tokens": self.tokens,
        }


@frozen
class MovePreview:
    """The guidance of an agent before and after a change of its leader or of a profile."""

    agent: str
    before: Guidance
    after: Guidance


@frozen
class ProfilePreview:
    """The profile after edits, and the guidance of each agent that changes. `from_soul` are the sections that the edits
    restore from `soul.md`."""

    profile: LeaderProfile
    prompts: tuple[MovePreview, ...]
    from_soul: tuple[str, ...] = ()

    @property
    def changes(self) -> list[tuple[list[str], tuple[str, ...]]]:
        """(agents, lines that their prompts lose (`- …`) and gain (`+ …`)), the change of most agents first."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for preview in self.prompts:
            before, after = preview.before.statements, preview.after.statements
            lost = tuple(f"- {item}" for item in before if item not in after)
            alike.setdefault((*lost, *(f"+ {item}" for item in after if item not in before)), []).append(preview.agent)
        return sorted(((agents, lines) for lines, agents in alike.items()), key=lambda pair: -len(pair[0]))


@frozen
class TeachingState:
    """Soul enrichment (SPEC 1.6). `diff` is what the next round would change in the agent's `soul.md`, as a unified
    diff, "" for nothing; `reason` says why it cannot be taught. Instants are None when there was, or will be, none."""

    agent: str
    enabled: bool
    last: datetime | None
    next: datetime | None
    diff: str = ""
    reason: str = ""


class Basis(StrEnum):
    """The evidence for a learning (SPEC 6.7)."""

    TESTS = "tests"
    OPERATOR = "operator"
    REPEATED = "repeated"
    SINGLE = "single"
    MODEL = "model"


@frozen
class Touched:
    """The effects of a learning."""

    failure_avoided: bool = False
    seconds: float = 0.0
    """Spent, or possible to save."""
    cost: int = 0
    """In micro-dollars, spent, or possible to save."""
    reach: int = 1
    """Number of tests, files or sessions."""


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
class Learnt:
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
class Taught:
    """The result of a round of teaching for one agent: "taught", "unchanged" or "skipped", with the reason."""

    agent: str
    did: str
    reason: str = ""


@frozen
class FlushReport:
    """The result of a flush: by leader, the findings that became patterns; the number that wait; the error, if any."""

    flushed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting: int = 0
    failed: str = ""


CONFIDENCE = {
    Basis.TESTS: (0.9, "tests confirmed it"),
    Basis.OPERATOR: (0.9, "you confirmed it"),
    Basis.REPEATED: (0.75, "it was observed repeatedly"),
    Basis.SINGLE: (0.5, "it was observed once"),
    Basis.MODEL: (0.4, "a model claims it"),
}

FAILURE, TIME, COST, REACH = 0.4, 0.2, 0.15, 0.25
"""What a failure avoided, half an hour, half a dollar and five things concerned weigh. They sum to 1. A failure avoided
that concerns four things weighs 0.60, what the gate of importance asks for."""

FULL_SECONDS, FULL_COST, FULL_REACH = 1800.0, MICRO // 2, 5


def confidence(basis: Basis, observed: int = 1) -> Score:
    """The confidence of a learning. `observed` is the number of sessions that observed it; more than one make a single
    observation a repeated one."""
    if basis is Basis.SINGLE and observed > 1:
        basis = Basis.REPEATED
    value, reason = CONFIDENCE[basis]
    return Score(value, (f"{reason} ({observed} times)" if basis is Basis.REPEATED and observed > 1 else reason,))


def importance(touched: Touched) -> Score:
    """The importance of a learning, from 0 to 1, rounded to hundredths, by failure, time, cost and reach."""
    parts = [
        (FAILURE if touched.failure_avoided else 0.0, "a failure was avoided"),
        (TIME * _share(touched.seconds, FULL_SECONDS), f"{count(round(touched.seconds / 60), 'minute')} of work"),
        (COST * _share(touched.cost, FULL_COST), f"${touched.cost / MICRO:.2f} spent on it"),
        (REACH * _share(touched.reach, FULL_REACH), f"it concerns {_things(touched.reach)}"),
    ]
    return Score(
        round(sum(value for value, _ in parts), 2),
        tuple(f"{words}: +{value:.2f}" for value, words in parts if value >= 0.005) or ("it affected nothing",),
    )


def _things(reach: int) -> str:
    return "one thing" if reach == 1 else f"{reach} things"


def _share(amount: float, full: float) -> float:
    return min(1.0, max(0.0, amount / full))
