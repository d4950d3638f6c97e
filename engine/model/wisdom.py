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
    """Whether the name of a pattern says anything: the id of a lesson does not. Pure."""
    return not key.startswith(LESSON)


@frozen
class PatternSource:
    """What a pattern was learnt from: the learning's id, who found it, and in which session."""

    learning: str
    agent: str
    session: str = ""


@frozen
class Pattern:
    """Something a leader knows to work. `key` names it within the leader; `uses` counts the guided prompts that
    carried it. `at` is when this wording was written, None for one that stands in `soul.md`. A quoted one was approved
    by the operator, or it would not be a pattern."""

    key: str
    text: str
    uses: int = 0
    at: datetime | None = None
    last_used: datetime | None = None
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def said(self) -> str:
        """What it says, after its name where somebody gave it one."""
        return f"{self.key}: {self.text}" if telling(self.key) else self.text


@frozen
class PatternVersion:
    """One wording that a pattern has or had; an empty text means that it was taken out. `origin` is the home."""

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
    """What a leader has to say (SPEC 1.9). Patterns stand in the order of their weight: most used, then newest."""

    leader: str
    domain: str = ""
    principles: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    guardrails: tuple[str, ...] = ()
    decisions: tuple[LeaderDecision, ...] = ()


@frozen
class ProfileEdit:
    """One change of a profile: a new text of "domain", new items of "principles" or "guardrails", or a new text of the
    one of "patterns" or "decisions" that `key` names. Empty, it takes that one out, or brings back what `soul.md` says
    of the section; a new text without a key is a new one."""

    section: str
    value: str | tuple[str, ...]
    key: str = ""


@frozen
class GuidanceItem:
    """One thing a leader says. `section` is "principles", "patterns", "guardrails" or "recent-decisions"; `ref`, for
    instance `cto#patterns/api_first`, is what a line of a prompt leads back to."""

    section: str
    ref: str
    text: str
    tokens: int
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def lesson(self) -> str:
        """The lesson that it says, however its wording was changed."""
        key = self.ref.rpartition("/")[2]
        return lesson_id(self.text) if telling(key) else key

    @property
    def wording(self) -> str:
        """Tells this wording of the item from others, without saying it."""
        return hashlib.sha256(self.text.encode(errors="replace")).hexdigest()[:12]


@frozen
class GuidanceHop:
    """One leader of the chain. `share` are the tokens it may use, `tokens` those it uses; `why` says why it says
    nothing, "" when it speaks."""

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
    """What the leaders of an agent tell it now (SPEC 1.5). `lines` is the block with a source for each line, empty
    when there is none; `reason` then says why. `chain_end` says in words where the chain ends."""

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
        """Each thing it is told, with the leader that says it: `cto, principles: Measure first.`"""
        items = [(hop.leader, item) for hop in self.hops for item in hop.kept]
        return [f"{leader}, {item.section.removeprefix('recent-')}: {item.text}" for leader, item in items]

    @property
    def cut(self) -> int:
        """How many things had no room."""
        return sum(len(hop.cut) for hop in self.hops)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """For the record of a call (SPEC 1.10): `bubble_source_ids` are the agents whose findings it carries;
        `guidance_items` lead to each thing that was said, and `guidance_wordings` tell how it was worded then."""
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
    """What a change, of its place or of what a leader says, would make of an agent's guidance."""

    agent: str
    before: Guidance
    after: Guidance


@frozen
class ProfilePreview:
    """What edits would make of a leader's profile, and of the guidance of each agent where that changes. `from_soul`
    are the sections that the edits empty, so that what `soul.md` says of them is used again."""

    profile: LeaderProfile
    prompts: tuple[MovePreview, ...]
    from_soul: tuple[str, ...] = ()

    @property
    def changes(self) -> list[tuple[list[str], tuple[str, ...]]]:
        """Agents with the same change, and what their prompts lose (`- …`) and gain (`+ …`); most agents first."""
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
    """How something was established (SPEC 6.7)."""

    TESTS = "tests"
    OPERATOR = "operator"
    REPEATED = "repeated"
    SINGLE = "single"
    MODEL = "model"


@frozen
class Touched:
    """What a learning touched. `seconds` and `cost` (micro-dollars) were spent, or would have been saved; `reach` is
    the number of things it concerns: tests, files, sessions."""

    failure_avoided: bool = False
    seconds: float = 0.0
    cost: int = 0
    reach: int = 1


@frozen
class Score:
    """A number from 0 to 1 and the reasons for it, in words."""

    value: float
    reasons: tuple[str, ...]


@frozen
class Learning:
    """Something an agent found out. `id` is the same whenever it is told again; `category` are words, "" for none."""

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
    """Something that was found out in a workspace and is a pattern of a leader now, in that leader's wording: by whom
    and in which session it was found out, and when it went up."""

    text: str
    leader: str
    pattern: str
    agent: str
    session: str
    at: datetime


class BubbleState(StrEnum):
    """Where a learning on its way up is."""

    QUEUED = "queued"
    REFUSED = "refused"
    FLUSHED = "flushed"


@frozen
class GateResult:
    """One gate of SPEC 1.7, by its number and name, and what it said."""

    number: int
    name: str
    passed: bool
    reason: str


@frozen
class Bubble:
    """A learning on its way to the direct leader. `gates` are those that were asked, in order; of a refused one the
    last said no. `pattern` is the key of what it became."""

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
        """Whether it may become a pattern: words of others wait for the operator."""
        return may_guide(self.learning.trust, approved=self.approved_at is not None)

    @property
    def refused_by(self) -> GateResult | None:
        """The gate that said no."""
        return next((gate for gate in self.gates if not gate.passed), None)


@frozen
class Taught:
    """What a round of teaching did to one agent: "taught", "unchanged" or "skipped", and why it was skipped."""

    agent: str
    did: str
    reason: str = ""


@frozen
class FlushReport:
    """One round of the queue: bubbles that became, or joined, patterns by leader; how many wait on; what failed."""

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
    """How sure it is. `observed` is in how many separate sessions it was seen: what was seen once, seen again, is
    repeated; more of the same makes it no surer."""
    if basis is Basis.SINGLE and observed > 1:
        basis = Basis.REPEATED
    value, reason = CONFIDENCE[basis]
    return Score(value, (f"{reason} ({observed} times)" if basis is Basis.REPEATED and observed > 1 else reason,))


def importance(touched: Touched) -> Score:
    """How much it weighs, from 0 to 1, rounded to hundredths: the more failure, time, cost and reach, the more."""
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
