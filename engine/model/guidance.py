"""Findings that agents send up to their leaders (SPEC 1.7, 1.8), profiles of leaders, and the guidance that agents get
from them (1.5, 1.6, 1.9, 1.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.model.base import Trust, hex_hash, may_guide
from engine.model.learnings import LESSON_PREFIX, make_lesson_id
from engine.model.prompts import PromptLine

# -- findings


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
    """A finding of a workspace that became a pattern of a leader, with its agent and session. `at` is the time of the
    flush."""

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
    """A finding on its way to the direct leader. `gates` are the results of the gates that were asked, in order. If the
    finding was refused, the last one refused it. `pattern` is the key of the pattern that it became."""

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


# -- profiles


def is_descriptive_key(key: str) -> bool:
    """Whether the key of a pattern is a name, not the id of a lesson."""
    return not key.startswith(LESSON_PREFIX)


@frozen
class PatternSource:
    """The finding that a pattern was learnt from: the learning's id, its agent and session."""

    learning: str
    agent: str
    session: str = ""


@frozen
class ProfileItem:
    """A pattern, which is a practice that a leader knows to work, or a decision that a leader made lately. `uses` is
    the number of prompts that contained it; `at` is the time of this version, None for one in `soul.md`. A quote is
    only an item after the operator approved it."""

    key: str
    text: str
    uses: int = 0
    at: datetime | None = None
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def text_with_name(self) -> str:
        """Its text, after its name if it has one."""
        return f"{self.key}: {self.text}" if is_descriptive_key(self.key) else self.text


@frozen
class LeaderProfile:
    """The profile of a leader (SPEC 1.9). Patterns are ordered by use, then newest first."""

    leader: str
    domain: str = ""
    principles: tuple[str, ...] = ()
    patterns: tuple[ProfileItem, ...] = ()
    guardrails: tuple[str, ...] = ()
    decisions: tuple[ProfileItem, ...] = ()

    def find_text(self, section: str, key: str) -> str:
        """The text of a pattern or decision, "" for none; `section` is "patterns" or "decisions"."""
        return next((item.text for item in getattr(self, section) if item.key == key), "")


@frozen
class ProfileEdit:
    """One change of a profile: a new text of "domain", new items of "principles" or "guardrails", or a new text of the
    pattern or decision with this `key`; without a key it is a new one. An empty value removes it, or restores the
    section from `soul.md`."""

    section: str
    value: str | tuple[str, ...]
    key: str = ""


# -- guidance


@frozen
class GuidanceItem:
    """One item of a leader's guidance. `section` is "principles", "patterns", "guardrails" or "recent-decisions";
    `ref`, for example `cto#patterns/api_first`, is the source of its line in a prompt. `at` is as in `ProfileItem`."""

    section: str
    ref: str
    text: str
    tokens: int
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR
    at: datetime | None = None

    @property
    def lesson(self) -> str:
        """The id of its lesson, also after its text was edited."""
        key = self.ref.rpartition("/")[2]
        return make_lesson_id(self.text) if is_descriptive_key(key) else key

    @property
    def wording(self) -> str:
        """A hash of its text."""
        return hex_hash(self.text, 12)


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
        """The text of the block, "" for none."""
        return "\n".join(line.text for line in self.lines)

    @property
    def statements(self) -> list[str]:
        """Each item with its leader: `cto, principles: Measure first.`"""
        items = [(hop.leader, item) for hop in self.hops for item in hop.kept]
        return [f"{leader}, {item.section.removeprefix('recent-')}: {item.text}" for leader, item in items]

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


# -- previews and teaching


@frozen
class MovePreview:
    """The guidance of an agent before and after a change of its leader or of a profile."""

    agent: str
    before: Guidance
    after: Guidance


@frozen
class PromptChange:
    """The lines that the prompts of some agents lose (`- …`) and gain (`+ …`)."""

    agents: tuple[str, ...]
    lines: tuple[str, ...]


@frozen
class ProfilePreview:
    """The profile after edits, and the guidance of each agent that changes. `from_soul` are the sections that the edits
    restore from `soul.md`."""

    profile: LeaderProfile
    prompts: tuple[MovePreview, ...]
    from_soul: tuple[str, ...] = ()

    @property
    def changes(self) -> list[PromptChange]:
        """The changes of prompts, that of most agents first."""
        agents_by_change: dict[tuple[str, ...], list[str]] = {}
        for preview in self.prompts:
            before, after = preview.before.statements, preview.after.statements
            lost = [f"- {item}" for item in before if item not in after]
            gained = [f"+ {item}" for item in after if item not in before]
            agents_by_change.setdefault((*lost, *gained), []).append(preview.agent)
        changes = [PromptChange(tuple(agents), lines) for lines, agents in agents_by_change.items()]
        return sorted(changes, key=lambda change: -len(change.agents))


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


class TeachingOutcome(StrEnum):
    """The outcome of a round of teaching for one agent."""

    TAUGHT = "taught"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


@frozen
class TeachingResult:
    """The result of a round of teaching for one agent, with the reason why it was skipped."""

    agent: str
    outcome: TeachingOutcome
    reason: str = ""
