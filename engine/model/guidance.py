"""What goes up and down the organisation: a finding of an agent becomes a pattern in the profile of its leader (SPEC
1.7 to 1.9), and the guidance of the agents below is made of that profile (1.5, 1.6, 1.10).

`engine.hierarchy` computes them; the hierarchy screen and prompts contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from engine.frozen import frozen
from engine.lessons import LESSON_PREFIX, make_lesson_id
from engine.model.prompts import PromptLine, Trust, may_guide
from engine.text import hex_hash

# -- up: findings


@frozen
class Score:
    """A number from 0 to 1 and the reasons for it, in words."""

    value: float
    reasons: tuple[str, ...]


@frozen
class OfferedFinding:
    """A finding as it is offered to the leader of its agent."""

    id: str
    """The same whenever it is offered again."""
    text: str
    category: str
    """The topics that it concerns, as words separated by spaces."""
    agent: str
    session: str
    confidence: Score
    importance: Score
    evidence: tuple[str, ...] = ()
    workspace: str = ""
    trust: Trust = Trust.QUOTED


@frozen
class AcceptedFinding:
    """A finding of a workspace that became a pattern of a leader."""

    text: str
    leader: str
    pattern: str
    """The key of the pattern."""
    agent: str
    session: str
    at: datetime
    """The time of the flush."""


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
    """A finding on its way to the direct leader."""

    id: str
    learning: OfferedFinding
    leader: str
    state: BubbleState
    gates: tuple[GateResult, ...]
    """The results of the gates that were asked, in order. If the finding was refused, the last one refused it."""
    at: datetime
    flushed_at: datetime | None = None
    pattern: str = ""
    """The key of the pattern that it became, "" before."""
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
    """The result of a flush."""

    flushed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By leader: the findings that became patterns."""
    waiting: int = 0
    """The number of findings that still wait."""
    failed: str = ""
    """The error, "" for none."""


# -- profiles


def is_descriptive_key(key: str) -> bool:
    """Whether the key of a pattern is a name, not the id of a lesson."""
    return not key.startswith(LESSON_PREFIX)


@frozen
class PatternSource:
    """The finding that a pattern was learnt from."""

    learning: str
    """The id of the finding as it was offered."""
    agent: str
    session: str = ""


@frozen
class ProfileItem:
    """A pattern, which is a practice that a leader knows to work, or a decision that a leader made lately. A quote is
    only an item after the operator approved it."""

    key: str
    text: str
    uses: int = 0
    """The number of prompts that contained it."""
    at: datetime | None = None
    """The time of this version, None for one in `soul.md`."""
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR

    @property
    def text_with_name(self) -> str:
        """Its text, after its name if it has one."""
        return f"{self.key}: {self.text}" if is_descriptive_key(self.key) else self.text


@frozen
class LeaderProfile:
    """The profile of a leader (SPEC 1.9)."""

    leader: str
    domain: str = ""
    principles: tuple[str, ...] = ()
    patterns: tuple[ProfileItem, ...] = ()
    """By use, the most used first, then newest first."""
    guardrails: tuple[str, ...] = ()
    decisions: tuple[ProfileItem, ...] = ()

    def find_text(self, section: str, key: str) -> str:
        """The text of a pattern or decision, "" for none; `section` is "patterns" or "decisions"."""
        items = self.patterns if section == "patterns" else self.decisions
        return next((item.text for item in items if item.key == key), "")


@frozen
class ProfileEdit:
    """One change of a profile."""

    section: str
    """The name of a field of `LeaderProfile`."""
    value: str | tuple[str, ...]
    """The new text of "domain", of a pattern or of a decision; the new items of "principles" or "guardrails". An empty
    value removes the pattern or decision, or restores the section from `soul.md`."""
    key: str = ""
    """That of the pattern or decision, "" for a new one and for other sections."""


# -- down: guidance


@frozen
class GuidanceItem:
    """One item of a leader's guidance."""

    section: str
    """ "principles", "patterns", "guardrails" or "recent-decisions"."""
    ref: str
    """The source of its line in a prompt, for example `cto#patterns/api_first`."""
    text: str
    tokens: int
    sources: tuple[PatternSource, ...] = ()
    trust: Trust = Trust.OPERATOR
    at: datetime | None = None
    """As in `ProfileItem`."""

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
    """One leader of the chain."""

    leader: str
    tier: int
    hop: int
    """0 for the direct leader, one more for each leader above."""
    share: int = 0
    """The number of tokens that it may use."""
    tokens: int = 0
    """The number of tokens that it uses."""
    kept: tuple[GuidanceItem, ...] = ()
    cut: tuple[GuidanceItem, ...] = ()
    """The items that did not fit into its share."""
    why: str = ""
    """Why it gives no guidance, "" if it does."""


@frozen
class Guidance:
    """The guidance of an agent (SPEC 1.5)."""

    agent: str
    tier: int
    lines: tuple[PromptLine, ...] = ()
    """The block, with a source for each line."""
    tokens: int = 0
    budget: int = 0
    hops: tuple[GuidanceHop, ...] = ()
    chain: tuple[str, ...] = ()
    chain_end: str = ""
    """Where the chain of leaders ends, in words."""
    reason: str = ""
    """Why there are no lines, "" if there are."""

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
class GuidanceChange:
    """The guidance of an agent before and after a change of its leader or of a profile."""

    agent: str
    before: Guidance
    after: Guidance


@frozen
class PromptChange:
    """What changes in the prompts of some agents."""

    agents: tuple[str, ...]
    lines: tuple[str, ...]
    """The lines that they lose (`- …`) and gain (`+ …`)."""


@frozen
class ProfilePreview:
    """The profile after edits, and what they change."""

    profile: LeaderProfile
    prompts: tuple[GuidanceChange, ...]
    """The guidance of each agent that changes."""
    from_soul: tuple[str, ...] = ()
    """The sections that the edits restore from `soul.md`."""

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
    """Soul enrichment of an agent (SPEC 1.6)."""

    agent: str
    enabled: bool
    last: datetime | None
    """The time of the last round, None if there was none."""
    next: datetime | None
    """The time of the next round, None if there will be none."""
    diff: str = ""
    """What the next round would change in the agent's `soul.md`, as a unified diff; "" for nothing."""
    reason: str = ""
    """Why it cannot be taught, "" if it can."""


class TeachingOutcome(StrEnum):
    """The outcome of a round of teaching for one agent."""

    TAUGHT = "taught"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


@frozen
class TeachingResult:
    """The result of a round of teaching for one agent."""

    agent: str
    outcome: TeachingOutcome
    reason: str = ""
    """Why it was skipped, "" if it was not."""
