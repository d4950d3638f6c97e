"""Agents, the wisdom that flows between them, and what they share (SPEC 1)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAdded(Event):
    reports_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMoved(Event):
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRetired(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFileChanged(Event):
    """A file of an agent (`subject`) was edited (SPEC 4.1), or, without `file`, a folder came or went that has none of
    an agent's files. `how`: "in the console", "by the engine", or "on disk" when another program did it, or nobody said
    who."""

    file: str
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TierAssigned(Event):
    """The operator said which tier an agent is; None lets the other rules decide again (SPEC 1.2)."""

    tier: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceApplied(Event):
    """A call of an agent's model (`subject` is the agent) carried its leaders' guidance (SPEC 1.10). `items` lead to
    what was said, for instance `cto#patterns/api_first`, `wordings` tell how, in the same order."""

    session_id: str
    call: str
    chain: tuple[str, ...]
    sources: tuple[str, ...]
    items: tuple[str, ...]
    wordings: tuple[str, ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WisdomTaught(Event):
    """The "Inherited Wisdom" of an agent's `soul.md` was written anew (SPEC 1.6)."""

    leaders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeachingRefreshed(Event):
    """A round of soul enrichment reached every worker (SPEC 1.6): so many souls were rewritten, so many said already
    what they would."""

    taught: int
    unchanged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceFoundNoisy(Event):
    """Something that leaders say (`subject`, for instance `cto#patterns/api_first`) goes with worse work of an agent.

    Of `told` sessions that carried it `told_bad` ended badly, of `untold` of the same agent without it `untold_bad`;
    with 95 % confidence, however often one looks, its share is worse by more than `harm`, from 0 to 1 (see
    `hierarchy.outcomes`).
    """

    leader: str
    agent: str
    wording: str
    told: int
    told_bad: int
    untold: int
    untold_bad: int
    harm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidanceFoundStale(Event):
    """Something that leaders say (`subject`) has outlived its time: it is `days` old where `most` are the rule, or
    names files that are `gone` (see `hierarchy.outcomes`). `told` sessions of the last 30 days carried it."""

    leader: str
    wording: str
    days: int
    most: int
    told: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleQueued(Event):
    """A learning passed all gates of SPEC 1.7 and waits to go up to `leader`."""

    agent: str
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleApproved(Event):
    """The operator lets words of others go up to `leader`: the next round takes them."""

    agent: str
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleRefused(Event):
    """A learning stays where it is; `gate` says which gate refused it, `reason` why."""

    agent: str
    gate: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBubbleFlushed(Event):
    """Bubbles became, or joined, patterns of a leader (`subject`), in this order (SPEC 1.8), with the confidence and
    importance, 0 to 1, that took each through the gates."""

    bubbles: tuple[str, ...]
    patterns: tuple[str, ...]
    agents: tuple[str, ...]
    confidences: tuple[float, ...]
    importances: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileEdited(Event):
    """A leader's profile (`subject`) was changed by the operator: which section, and which item of it."""

    section: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudSyncFailed(Event):
    """What machines share could not be sent or fetched (SPEC 1.8, 1.9, 4.5): `subject` is "leadership" or "summaries".
    What is unsent waits."""

    message: str
    unsent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMemoryRecalled(Event):
    """A call of an agent's model (`subject` is the agent) was served summaries that other machines shared (SPEC 4.5):
    which `memories`, and from which homes."""

    session_id: str
    call: str
    memories: tuple[str, ...]
    origins: tuple[str, ...]
