"""Guidance of leaders in every prompt of an agent (M1; SPEC 1.4, 1.5, 1.10).

The direct leader contributes everything, the next leader principles and key patterns, and leaders above only
principles. Each has a share of the token budget. Items that do not fit the share are left out whole.

A block is cached for `m1_cache_ttl_seconds`. It is rendered again at once if a folder of the chain, a leader's
`soul.md`, the settings or a profile changed. The check takes a few dozen `stat` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from html import escape
from typing import Any

from engine import tokenizer
from engine.clock import Clock
from engine.files import read_signature
from engine.frozen import frozen
from engine.hierarchy import Lineage, is_leader
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_text import MAX_ITEMS, clean_item
from engine.hierarchy.profiles import Profiles
from engine.model import (
    Contribution,
    Guidance,
    GuidanceChange,
    GuidanceHop,
    GuidanceItem,
    LeaderProfile,
    ProfileEdit,
    ProfileItem,
    ProfilePreview,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    SourceKind,
    Trust,
)
from engine.model.prompts import OWN_TEXT, find_lowest_trust
from engine.wording import mark_approved

MAX_CACHED_VALUES = 4_000
"""Number of blocks at which the cache is cleared."""

BLOCK_TAG = "leadership-guidance"
"""The tag of the block."""

SHARES_BY_DISTANCE = (1.0, 0.6, 0.3)
"""The relative shares of the budget: of the direct leader, of the next one, and of each leader above."""

SECTIONS_BY_DISTANCE = (
    ("principles", "guardrails", "patterns", "recent-decisions"),
    ("principles", "patterns"),
    ("principles",),
)
"""The sections of a leader's guidance at each distance, the most important first."""

MAX_KEY_PATTERNS = 5
"""Maximum number of key patterns of a leader's leader. The most used patterns come first, then the newest."""

SECTION_ORDER = ("principles", "patterns", "guardrails", "recent-decisions")
"""The order of the sections in the block."""

INLINE_SECTIONS = ("principles", "recent-decisions")
"""Sections whose items are on one line, separated by a bar."""

_OPENING = PromptLine(f"<{BLOCK_TAG}>", OWN_TEXT)
_CLOSING = PromptLine(f"</{BLOCK_TAG}>", OWN_TEXT)


FindLessons = Callable[[PromptRequest], frozenset[str]]
"""Finds the lessons in parts of a prompt."""


@frozen
class _CachedGuidance:
    """A block, the versions of everything that it was made of, and the time until which it is used."""

    basis: tuple[Any, ...]
    until: datetime
    guidance: Guidance


class Cascade:
    """Guidance for agents, which is a part of every prompt. Thread-safe."""

    name = "guidance"

    def __init__(self, agents: Agents, profiles: Profiles, *, clock: Clock, nearer_lessons: FindLessons) -> None:
        """`nearer_lessons(request)` returns the lessons in parts of the prompt that are nearer to the agent."""
        self._agents = agents
        self._profiles = profiles
        self._clock = clock
        self._nearer_lessons = nearer_lessons
        self._cache: dict[tuple[str, bool, frozenset[str]], _CachedGuidance] = {}

    def make_part(self, request: PromptRequest) -> Contribution:
        """The block for a request. Its notes name the leaders whose items did not fit. Raises `Refusal`
        `unknown_agent`."""
        if not request.agent:
            return Contribution(None)
        guidance = self.guidance(request.agent, excluded_lessons=self._nearer_lessons(request))
        if not guidance.lines:
            return Contribution(None, guidance.provenance)
        notes = tuple(
            f"guidance of {hop.leader}: {len(hop.cut)} of its items had no room" for hop in guidance.hops if hop.cut
        )
        return Contribution(PromptPart(BLOCK_TAG, guidance.lines, tokens=guidance.tokens), guidance.provenance, notes)

    def find_lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in this part and those nearer to the agent."""
        nearer = self._nearer_lessons(request)
        hops = self.guidance(request.agent, excluded_lessons=nearer).hops if request.agent else ()
        return nearer.union(item.lesson for hop in hops for item in hop.kept)

    def guidance(
        self, agent_id: str, *, in_prompts: bool = True, excluded_lessons: frozenset[str] = frozenset()
    ) -> Guidance:
        """The guidance in the next prompt of this agent. With `in_prompts` False, it is returned even if `enable_m1` is
        off. `excluded_lessons` are in other parts of the prompt already. Raises `Refusal` `unknown_agent`."""
        config = self._agents.config.current
        lineage = self._agents.find_lineage(agent_id)
        souls = [read_signature(self._agents.locate_soul(leader.id)) for leader in lineage.leaders]
        basis = (config, lineage, self._profiles.generation, *souls)
        key, now = (agent_id, in_prompts, excluded_lessons), self._clock.now()
        cached = self._cache.get(key)
        if cached is not None and cached.basis == basis and now < cached.until:
            return cached.guidance
        guidance = self._make_guidance(lineage, in_prompts=in_prompts, excluded_lessons=excluded_lessons)
        if len(self._cache) >= MAX_CACHED_VALUES:
            self._cache.clear()
        until = now + timedelta(seconds=config.m1_cache_ttl_seconds)
        self._cache[key] = _CachedGuidance(basis, until, guidance)
        return guidance

    def preview_move(self, agent_id: str, reports_to: str) -> GuidanceChange:
        """The agent's guidance now, and after a move to `reports_to`. Raises as `Agents.move`."""
        after = self._make_guidance(self._agents.find_lineage(agent_id, under=reports_to))
        return GuidanceChange(agent_id, self.guidance(agent_id), after)

    def preview_edits(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """The profile of a leader after these edits, and the agents whose prompts change. Raises `Refusal` as
        `Profiles.edit`."""
        profile = self._profiles.preview(leader, edits)
        # A section that an edit empties is read from the soul again.
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        previews = []
        for agent_id in self._agents.list_ids():
            lineage = self._agents.find_lineage(agent_id)
            if any(above.id == leader for above in lineage.leaders):
                before = self._make_guidance(lineage)
                after = self._make_guidance(lineage, edited=profile)
                if before.block != after.block:
                    previews.append(GuidanceChange(agent_id, before, after))
        return ProfilePreview(profile, tuple(previews), from_soul)

    def _make_guidance(
        self,
        lineage: Lineage,
        *,
        in_prompts: bool = True,
        excluded_lessons: frozenset[str] = frozenset(),
        edited: LeaderProfile | None = None,
    ) -> Guidance:
        """Compose the guidance of an agent. An `edited` profile replaces the one that is stored."""
        agent, config = lineage.agent, self._agents.config.current
        chain = tuple(leader.id for leader in lineage.leaders)
        guidance = Guidance(agent.id, agent.tier, budget=config.m1_token_budget, chain=chain, chain_end=lineage.end)
        guiding = [leader.id for leader in lineage.leaders if is_leader(leader.tier)]
        if is_leader(agent.tier):
            return replace(guidance, reason=f"tier {agent.tier} leads and receives no guidance")
        if in_prompts and not config.enable_m1:
            return replace(guidance, reason="enable_m1 is off in wisdom_cascade_config.json")
        if not guiding:
            return replace(guidance, reason="it has no leader: its chain " + lineage.end)
        hops = tuple(GuidanceHop(leader.id, leader.tier, hop) for hop, leader in enumerate(lineage.leaders))
        profiles = self._profiles.read_all(guiding)
        if edited is not None:
            profiles[edited.leader] = edited
        return compose_guidance(replace(guidance, hops=hops), profiles, excluded_lessons)


def split_budget(distances: Sequence[int], budget: int) -> list[int]:
    """The token budget of each of the leaders at these distances. The sum is at most `budget`."""
    shares = [SHARES_BY_DISTANCE[min(distance, len(SHARES_BY_DISTANCE) - 1)] for distance in distances]
    return [int(budget * share / sum(shares)) for share in shares]


def compose_guidance(
    guidance: Guidance, profiles: Mapping[str, LeaderProfile], excluded_lessons: frozenset[str] = frozenset()
) -> Guidance:
    """Guidance with a block of at most `budget` tokens, or with the reason why it has none.

    Its `hops` go from the direct leader upward, and `profiles` has the profiles of those that lead by their tier. Items
    with `excluded_lessons` or with the lesson of a nearer leader are left out.
    """
    distances = [hop.hop for hop in guidance.hops if is_leader(hop.tier)]
    budget = max(0, guidance.budget - tokenizer.count_lines((_OPENING, _CLOSING)))
    shares = dict(zip(distances, split_budget(distances, budget), strict=True))
    hops: list[GuidanceHop] = []
    lines: list[PromptLine] = []
    for hop in guidance.hops:
        if not is_leader(hop.tier):
            hops.append(replace(hop, why=f"tier {hop.tier} gives no guidance"))
            continue
        items = [item for item in select_items(profiles[hop.leader], hop.hop) if item.lesson not in excluded_lessons]
        filled = _fill_share(replace(hop, share=shares[hop.hop]), items)
        leader_lines = _render_leader(filled)
        lines += leader_lines
        hops.append(replace(filled, tokens=tokenizer.count_lines(leader_lines)))
        excluded_lessons = excluded_lessons.union(item.lesson for item in filled.kept)
    if not lines:
        is_cut = any(hop.cut for hop in hops)
        reason = "no room within m1_token_budget" if is_cut else "its leaders have no guidance yet"
        return replace(guidance, hops=tuple(hops), reason=reason)
    lines = [_OPENING, *lines, _CLOSING]
    return replace(guidance, hops=tuple(hops), lines=tuple(lines), tokens=tokenizer.count_lines(lines))


def select_items(profile: LeaderProfile, distance: int = 0) -> list[GuidanceItem]:
    """The guidance of a leader at its distance, the most important first."""
    items: list[GuidanceItem] = []
    for section in SECTIONS_BY_DISTANCE[min(distance, len(SECTIONS_BY_DISTANCE) - 1)]:
        limit = MAX_KEY_PATTERNS if distance and section == "patterns" else MAX_ITEMS
        mark = "|" if section in INLINE_SECTIONS else "-"
        for item in _list_section_items(profile, section)[:limit]:
            if text := clean_item(item.text_with_name if section == "patterns" else item.text):
                tokens = tokenizer.count(f"{mark} {escape(format_item(text, item.trust), quote=False)}")
                ref = f"{profile.leader}#{section}/{item.key}"
                items.append(GuidanceItem(section, ref, text, tokens, item.sources, item.trust, item.at))
    return items


def _list_section_items(profile: LeaderProfile, section: str) -> Sequence[ProfileItem]:
    """The items of a section of guidance; those of a list have numbers as keys."""
    match section:
        case "patterns":
            return profile.patterns
        case "recent-decisions":
            return profile.decisions
    return [ProfileItem(str(number), text) for number, text in enumerate(getattr(profile, section), 1)]


def _fill_share(hop: GuidanceHop, items: Sequence[GuidanceItem]) -> GuidanceHop:
    """Give a leader the items that fit its share. A later, smaller item may fit where a larger one did not. The tokens
    of a block are the sum of those of its parts, because the tokenizer splits at spaces and punctuation."""
    tokens = sum(map(tokenizer.count, _make_tags(hop)))
    kept: list[GuidanceItem] = []
    cut: list[GuidanceItem] = []
    for item in items:
        cost = item.tokens
        if all(item.section != kept_item.section for kept_item in kept):
            cost += tokenizer.count(f"<{item.section}></{item.section}>")
        if tokens + cost <= hop.share:
            kept.append(item)
            tokens += cost
        else:
            cut.append(item)
    reason = "no room in its share" if cut else "it has no guidance"
    return replace(hop, kept=tuple(kept), cut=tuple(cut), why="" if kept else reason)


def _render_leader(hop: GuidanceHop) -> list[PromptLine]:
    """The lines of a leader in the block; none if it has no items."""
    if not hop.kept:
        return []
    opening, closing = _make_tags(hop)
    lines = [PromptLine(f"  {opening}", OWN_TEXT)]
    for section in SECTION_ORDER:
        items = [item for item in hop.kept if item.section == section]
        if items:
            lines += _render_section(hop, section, items)
    return [*lines, PromptLine(f"  {closing}", OWN_TEXT)]


def _render_section(hop: GuidanceHop, section: str, items: Sequence[GuidanceItem]) -> list[PromptLine]:
    texts = [escape(format_item(item.text, item.trust), quote=False) for item in items]
    if section in INLINE_SECTIONS:
        source = _make_source(f"{hop.leader}#{section}", hop, find_lowest_trust(item.trust for item in items))
        return [PromptLine(f"    <{section}>{' | '.join(texts)}</{section}>", source)]
    sources = [_make_source(item.ref, hop, item.trust) for item in items]
    item_lines = [PromptLine(f"      - {text}", source) for text, source in zip(texts, sources, strict=True)]
    return [PromptLine(f"    <{section}>", OWN_TEXT), *item_lines, PromptLine(f"    </{section}>", OWN_TEXT)]


def format_item(text: str, trust: Trust) -> str:
    """The text of an item in a prompt; a quote says that the operator approved it."""
    return mark_approved(text, is_quote=trust is Trust.QUOTED)


def _make_tags(hop: GuidanceHop) -> tuple[str, str]:
    return f'<leader id="{escape(hop.leader)}" tier="{hop.tier}" hop="{hop.hop}">', "</leader>"


def _make_source(ref: str, hop: GuidanceHop, trust: Trust) -> PromptSource:
    return PromptSource(SourceKind.LEADER, ref, f"{hop.leader}, {hop.hop + 1} up", trust, trust is Trust.QUOTED)
