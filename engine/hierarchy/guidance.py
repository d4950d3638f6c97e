"""Selects and renders the guidance that goes into a prompt (SPEC 1.5). Pure.

The direct leader contributes everything, the next one principles and key patterns, those above principles only. Each
has a share of the token budget and drops whole items to keep it. If the rendered block is still too long, items of the
farthest leader are dropped first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from engine import tokenizer
from engine.clock import Clock
from engine.events import GuidanceApplied
from engine.files import file_signature
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.organisation import Lineage, is_leader
from engine.hierarchy.profile_text import item_text
from engine.hierarchy.profiles import Profiles
from engine.model import (
    Contribution,
    Guidance,
    GuidanceHop,
    GuidanceItem,
    LeaderProfile,
    MovePreview,
    Pattern,
    PatternSource,
    ProfileEdit,
    ProfilePreview,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    Refusal,
    SourceKind,
    Trust,
)
from engine.model.base import lowest_trust
from engine.model.prompts import OWN_TEXT
from engine.model.text import approved_text
from engine.storage.database import Transaction

_Item = tuple[str, str, tuple[PatternSource, ...], Trust]
"""Key, text, sources, and whose words it is."""

Count = Callable[[str], int]
"""How many tokens a text is."""

BLOCK = "leadership-guidance"
RATIOS = (1.0, 0.6, 0.3)
"""Of the direct leader, the next one, and everyone further up."""

SECTIONS_BY_HOP = (
    ("principles", "guardrails", "patterns", "recent-decisions"),
    ("principles", "patterns"),
    ("principles",),
)
"""The sections of a leader's guidance at each distance, the most important first."""

MAX_KEY_PATTERNS = 5
"""Maximum number of key patterns of a leader's leader: the most used, then the newest."""

MAX_ITEMS = 60
"""Maximum number of items of one section; a profile may have more."""

SECTION_ORDER = ("principles", "patterns", "guardrails", "recent-decisions")
INLINE_SECTIONS = ("principles", "recent-decisions")
"""Sections that stand on one line, their items separated by a bar."""


@frozen
class Speaker:
    """A leader of the chain at its distance. Without a profile it says nothing, and `why` says why."""

    leader: str
    tier: int
    hop: int
    profile: LeaderProfile | None = None
    why: str = ""


@dataclass(slots=True)
class _LeaderPart:
    speaker: Speaker
    share: int
    kept: list[GuidanceItem] = field(default_factory=list)
    cut: list[GuidanceItem] = field(default_factory=list)


def budget_share(hop: int) -> float:
    """How much of what it has to say a leader at this distance says."""
    return RATIOS[min(hop, len(RATIOS) - 1)]


def budget_shares(hops: Sequence[int], budget: int) -> list[int]:
    """Tokens for each of the leaders at these distances; together at most `budget`."""
    total = sum(budget_share(hop) for hop in hops)
    return [int(budget * budget_share(hop) / total) for hop in hops]


def compose(
    speakers: Sequence[Speaker], budget: int, count: Count, excluded_lessons: frozenset[str] = frozenset()
) -> tuple[list[PromptLine], list[GuidanceHop], int]:
    """The block, what of each leader is in it, and its tokens, never more than `budget`. `speakers` from the direct
    leader upward; `excluded_lessons`, and what a nearer leader says, are left out. There is no block when nothing is
    said or nothing fits."""
    frame = count(f"<{BLOCK}>") + count(f"</{BLOCK}>")
    speaking = [item for item in speakers if item.profile is not None]
    room = dict(
        zip([item.hop for item in speaking], budget_shares([s.hop for s in speaking], budget - frame), strict=True)
    )
    parts: list[_LeaderPart] = []
    for speaker in speakers:
        nearer = excluded_lessons.union(item.lesson for above in parts for item in above.kept)
        parts.append(_fit(speaker, max(0, room.get(speaker.hop, 0)), count, nearer))
    _trim_farther_leaders([part for part in parts if part.kept], count)
    while True:
        lines = render(parts)
        tokens = count("\n".join(line.text for line in lines)) if lines else 0
        if tokens <= budget:
            break
        farthest = next(part for part in reversed(parts) if part.kept)
        farthest.cut.insert(0, farthest.kept.pop())
    return lines, [_hop(part, count) for part in parts], tokens


def render(parts: Sequence[_LeaderPart]) -> list[PromptLine]:
    """The block as lines, each with what it came from."""
    inner = [line for part in parts if part.kept for line in _leader(part)]
    return [PromptLine(f"<{BLOCK}>", OWN_TEXT), *inner, PromptLine(f"</{BLOCK}>", OWN_TEXT)] if inner else []


def read_items(speaker: Speaker, count: Count) -> list[GuidanceItem]:
    """The guidance of a leader at its distance, the most important first."""
    profile = speaker.profile
    if profile is None:
        return []
    listed: list[GuidanceItem] = []
    for section in SECTIONS_BY_HOP[min(speaker.hop, len(SECTIONS_BY_HOP) - 1)]:
        for key, text, sources, trust in _section_items(profile, section, key_only=speaker.hop > 0)[:MAX_ITEMS]:
            line = item_text(text)
            if line:
                ref = f"{speaker.leader}#{section}/{key}"
                listed.append(GuidanceItem(section, ref, line, count(_written(section, line)), sources, trust))
    return listed


def _section_items(profile: LeaderProfile, section: str, *, key_only: bool) -> list[_Item]:
    if section == "patterns":
        patterns: Sequence[Pattern] = profile.patterns[:MAX_KEY_PATTERNS] if key_only else profile.patterns
        return [(pattern.key, pattern.text_with_name, pattern.sources, pattern.trust) for pattern in patterns]
    if section == "recent-decisions":
        return [(decision.id, decision.text, (), decision.trust) for decision in profile.decisions]
    texts = profile.principles if section == "principles" else profile.guardrails
    return [(str(number), text, (), Trust.OPERATOR) for number, text in enumerate(texts, 1)]


def _fit(speaker: Speaker, share: int, count: Count, said_before: frozenset[str]) -> _LeaderPart:
    """Whole items as long as the share has room; a smaller one may go where a larger one did not."""
    part = _LeaderPart(speaker, share)
    tokens = sum(count(tag) for tag in _tags(speaker))
    opened: set[str] = set()
    for item in read_items(speaker, count):
        if item.lesson in said_before:
            continue
        cost = item.tokens
        if item.section not in opened:
            cost += count(f"<{item.section}>") + count(f"</{item.section}>")
        if tokens + cost <= share:
            tokens += cost
            opened.add(item.section)
            part.kept.append(item)
        else:
            part.cut.append(item)
    return part


def _trim_farther_leaders(parts: Sequence[_LeaderPart], count: Count) -> None:
    """Drop items until no leader says more than a nearer one that had to leave something out. Items differ in length,
    so a long one of a farther leader may fit where one of the nearer leader did not."""
    for nearer, farther in pairwise(parts):
        while nearer.cut and farther.kept and _tokens(farther, count) > _tokens(nearer, count):
            farther.cut.insert(0, farther.kept.pop())


def _tokens(part: _LeaderPart, count: Count) -> int:
    return count("\n".join(line.text for line in _leader(part))) if part.kept else 0


def _hop(part: _LeaderPart, count: Count) -> GuidanceHop:
    speaker = part.speaker
    why = speaker.why
    if not why and not part.kept:
        why = "no room in its share" if part.cut else "it has no guidance"
    return GuidanceHop(
        speaker.leader,
        speaker.tier,
        speaker.hop,
        part.share,
        _tokens(part, count),
        tuple(part.kept),
        tuple(part.cut),
        why,
    )


def _leader(part: _LeaderPart) -> list[PromptLine]:
    opening, closing = _tags(part.speaker)
    lines = [PromptLine(f"  {opening}", OWN_TEXT)]
    for section in SECTION_ORDER:
        section_items = [item for item in part.kept if item.section == section]
        if not section_items:
            continue
        if section in INLINE_SECTIONS:
            source = _source(
                f"{part.speaker.leader}#{section}", part.speaker, lowest_trust(item.trust for item in section_items)
            )
            text = " | ".join(escape(with_approval(item)) for item in section_items)
            lines.append(PromptLine(f"    <{section}>{text}</{section}>", source))
        else:
            lines.append(PromptLine(f"    <{section}>", OWN_TEXT))
            lines += [
                PromptLine(f"      - {escape(with_approval(item))}", _source(item.ref, part.speaker, item.trust))
                for item in section_items
            ]
            lines.append(PromptLine(f"    </{section}>", OWN_TEXT))
    return [*lines, PromptLine(f"  {closing}", OWN_TEXT)]


def with_approval(item: GuidanceItem) -> str:
    """The text of an item; a quote says that the operator approved it."""
    return approved_text(item.text, is_quote=item.trust is Trust.QUOTED)


def _written(section: str, text: str) -> str:
    return f"| {escape(text)}" if section in INLINE_SECTIONS else f"- {escape(text)}"


def _tags(speaker: Speaker) -> tuple[str, str]:
    return f'<leader id={quoteattr(speaker.leader)} tier="{speaker.tier}" hop="{speaker.hop}">', "</leader>"


def _source(ref: str, speaker: Speaker, trust: Trust) -> PromptSource:
    return PromptSource(SourceKind.LEADER, ref, f"{speaker.leader}, {speaker.hop + 1} up", trust, trust is Trust.QUOTED)


# Guidance of leaders in every prompt of an agent (M1; SPEC 1.4, 1.5, 1.10), cached.
#
# A cached block is made again after `m1_cache_ttl_seconds`, and at once when a folder of the chain, a leader's
# `soul.md`, the settings or a profile changed. The check costs a few dozen `stat` calls.


MAX_CACHED = 4_000


@frozen
class _CachedGuidance:
    basis: tuple[Any, ...]
    until: datetime
    guidance: Guidance


class Cascade:
    """Guidance for agents. Thread-safe."""

    def __init__(self, agents: Agents, profiles: Profiles, *, clock: Clock) -> None:
        self._agents = agents
        self._profiles = profiles
        self._clock = clock
        self._cache: dict[tuple[str, bool, frozenset[str]], _CachedGuidance] = {}
        self._lock = threading.Lock()

    def guidance(
        self, agent_id: str, *, in_prompts: bool = True, excluded_lessons: frozenset[str] = frozenset()
    ) -> Guidance:
        """The guidance in the next prompt of this agent; with `in_prompts` False also if `enable_m1` is off.
        `excluded_lessons` are in nearer parts of the prompt already. Raises `Refusal` `unknown_agent`."""
        config = self._agents.config.current
        lineage = self._agents.lineage(agent_id)
        basis = (config, lineage, self._profiles.version, *self._souls(lineage))
        name = agent_id, in_prompts, excluded_lessons
        now = self._clock.now()
        with self._lock:
            cached = self._cache.get(name)
        if cached is not None and cached.basis == basis and now < cached.until:
            return cached.guidance
        guidance = self._make(lineage, config, in_prompts=in_prompts, excluded_lessons=excluded_lessons)
        with self._lock:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            until = now + timedelta(seconds=config.m1_cache_ttl_seconds)
            self._cache[name] = _CachedGuidance(basis, until, guidance)
        return guidance

    def preview_move(self, agent_id: str, reports_to: str) -> MovePreview:
        """The agent's guidance where it is, and where it would be. Raises `Refusal` as a move does."""
        config = self._agents.config.current
        after = self._make(self._agents.lineage(agent_id, under=reports_to), config, in_prompts=True)
        return MovePreview(agent_id, self.guidance(agent_id), after)

    def preview_edits(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """The profile of a leader after these edits, and the agents whose prompts change. Raises `Refusal` as
        `Profiles.edit`."""
        profile = self._profiles.preview(leader, edits)
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        return ProfilePreview(profile, self._changed_guidance(profile), from_soul)

    def _changed_guidance(self, profile: LeaderProfile) -> tuple[MovePreview, ...]:
        """Every agent whose guidance changes when its leader has this profile, before and after."""
        config = self._agents.config.current
        previews = []
        for agent_id in self._agents.ids():
            try:
                lineage = self._agents.lineage(agent_id)
            except Refusal:  # an agent with a broken folder gives and receives no guidance
                continue
            if profile.leader not in (leader.id for leader in lineage.leaders):
                continue
            before = self._make(lineage, config, in_prompts=True)
            after = self._make(lineage, config, in_prompts=True, instead=profile)
            if before.block != after.block:
                previews.append(MovePreview(agent_id, before, after))
        return tuple(previews)

    def record_applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, agent: str, call: str, session_id: str, workspace: str
    ) -> None:
        """Record that a model call of this agent carried this guidance, and count a use of each pattern in it."""
        if not provenance.get("guidance_applied"):
            return
        items = tuple(provenance["guidance_items"])
        self._profiles.record_uses(tx, (split for item in items if (split := _pattern(item))))
        tx.record(
            GuidanceApplied(
                subject=agent,
                workspace=workspace,
                session_id=session_id,
                call=call,
                chain=tuple(provenance["leadership_chain"]),
                sources=tuple(provenance["guidance_sources"]),
                items=items,
                wordings=tuple(provenance["guidance_wordings"]),
                tokens=provenance["guidance_tokens"],
            )
        )

    def _souls(self, lineage: Lineage) -> list[object]:
        signatures: list[object] = []
        for leader in lineage.leaders:
            try:
                signatures.append(file_signature(self._agents.soul_file(leader.id)))
            except OSError as error:
                signatures.append(error.errno)
        return signatures

    def _make(
        self,
        lineage: Lineage,
        config: CascadeConfig,
        *,
        in_prompts: bool,
        excluded_lessons: frozenset[str] = frozenset(),
        instead: LeaderProfile | None = None,
    ) -> Guidance:
        """`instead` replaces the profile of its leader."""
        agent, chain = lineage.agent, lineage.chain
        emitting = [leader.id for leader in lineage.leaders if is_leader(leader.tier)]
        reason = ""
        if is_leader(agent.tier):
            reason = f"tier {agent.tier} leads and receives no guidance"
        elif in_prompts and not config.enable_m1:
            reason = "enable_m1 is off in wisdom_cascade_config.json"
        elif not emitting:
            reason = "it has no leader: its chain " + chain.words
        if reason:
            return Guidance(
                agent.id, agent.tier, chain=chain.leaders, chain_end=chain.words, reason=reason,
                budget=config.m1_token_budget,
            )  # fmt: skip
        profiles = self._profiles.load(emitting)
        if instead is not None and instead.leader in profiles:
            profiles[instead.leader] = instead
        speakers = [
            Speaker(leader.id, leader.tier, hop, profiles[leader.id])
            if leader.id in profiles
            else Speaker(leader.id, leader.tier, hop, None, f"tier {leader.tier} gives no guidance")
            for hop, leader in enumerate(lineage.leaders)
        ]
        lines, hops, tokens = compose(speakers, config.m1_token_budget, tokenizer.count, excluded_lessons)
        if not lines:
            reason = (
                "no room within m1_token_budget" if any(hop.cut for hop in hops) else "its leaders have no guidance yet"
            )
        return Guidance(
            agent.id, agent.tier, tuple(lines), tokens, config.m1_token_budget, tuple(hops), chain.leaders, chain.words,
            reason,
        )  # fmt: skip


def _pattern(ref: str) -> tuple[str, str] | None:
    leader, _, rest = ref.partition("#")
    section, _, key = rest.partition("/")
    return (leader, key) if section == "patterns" else None


Lessons = Callable[[PromptRequest], frozenset[str]]
"""The lessons in parts of a prompt that are nearer to the agent."""


class LeadershipGuidance:
    """The part "guidance" of every prompt: the guidance of the agent's leaders."""

    name = "guidance"

    def __init__(self, cascade: Cascade, nearer: Lessons = lambda request: frozenset()) -> None:
        self._cascade = cascade
        self._nearer = nearer

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request; the notes name the leaders whose items had no room. Raises `Refusal` for an unknown
        agent."""
        guidance = self._guidance_for(request)
        if guidance is None or not guidance.lines:
            return Contribution(None, guidance.provenance if guidance else {})
        notes = tuple(
            f"guidance of {hop.leader}: {len(hop.cut)} of its items had no room" for hop in guidance.hops if hop.cut
        )
        return Contribution(PromptPart(BLOCK, guidance.lines, tokens=guidance.tokens), guidance.provenance, notes)

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in this part and those nearer to the agent."""
        guidance = self._guidance_for(request)
        lessons = [item.lesson for hop in guidance.hops for item in hop.kept] if guidance else []
        return self._nearer(request).union(lessons)

    def _guidance_for(self, request: PromptRequest) -> Guidance | None:
        return self._cascade.guidance(request.agent, excluded_lessons=self._nearer(request)) if request.agent else None
