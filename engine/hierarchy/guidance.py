"""Guidance of leaders in every prompt of an agent (M1; SPEC 1.4, 1.5, 1.10).

The direct leader contributes everything, the next leader principles and key patterns, and leaders above only
principles. Each has a share of the token budget. Items that do not fit the share are left out whole. If the rendered
block is still too long, items of the farthest leader are left out first.

A block is cached for `m1_cache_ttl_seconds`. It is rendered again at once if a folder of the chain, a leader's
`soul.md`, the settings or a profile changed. The check takes a few dozen `stat` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from html import escape
from typing import Any

from engine import tokenizer
from engine.clock import Clock
from engine.events import GuidanceApplied
from engine.files import read_signature
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.organisation import AgentTier, Lineage, is_leader
from engine.hierarchy.profile_items import clean_item
from engine.hierarchy.profiles import Profiles
from engine.model import (
    Contribution,
    Guidance,
    GuidanceHop,
    GuidanceItem,
    LeaderProfile,
    MovePreview,
    PatternSource,
    ProfileEdit,
    ProfilePreview,
    PromptLine,
    PromptPart,
    PromptRequest,
    PromptSource,
    SourceKind,
    Trust,
)
from engine.model.base import find_lowest_trust
from engine.model.prompts import OWN_TEXT
from engine.model.text import mark_approved
from engine.storage.database import Transaction

MAX_CACHED = 4_000
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

MAX_ITEMS = 60
"""Maximum number of items of one section in guidance; a profile may have more."""

SECTION_ORDER = ("principles", "patterns", "guardrails", "recent-decisions")
"""The order of the sections in the block."""

INLINE_SECTIONS = ("principles", "recent-decisions")
"""Sections whose items are on one line, separated by a bar."""


@frozen
class _CachedGuidance:
    """A block, the versions of everything that it was made of, and the time until which it is used."""

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
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        until = now + timedelta(seconds=config.m1_cache_ttl_seconds)
        self._cache[key] = _CachedGuidance(basis, until, guidance)
        return guidance

    def preview_move(self, agent_id: str, reports_to: str) -> MovePreview:
        """The agent's guidance now, and after a move to `reports_to`. Raises as `Agents.move`."""
        after = self._make_guidance(self._agents.find_lineage(agent_id, under=reports_to))
        return MovePreview(agent_id, self.guidance(agent_id), after)

    def preview_edits(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """The profile of a leader after these edits, and the agents whose prompts change. Raises `Refusal` as
        `Profiles.edit`."""
        profile = self._profiles.preview(leader, edits)
        # A section that an edit empties is read from the soul again.
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        previews = []
        for agent_id in self._agents.ids():
            lineage = self._agents.find_lineage(agent_id)
            if leader in lineage.chain.leaders:
                before = self._make_guidance(lineage)
                after = self._make_guidance(lineage, edited_profile=profile)
                if before.block != after.block:
                    previews.append(MovePreview(agent_id, before, after))
        return ProfilePreview(profile, tuple(previews), from_soul)

    def record_applied(
        self, tx: Transaction, provenance: Mapping[str, Any], *, agent: str, call: str, session_id: str, workspace: str
    ) -> None:
        """Record that a model call of this agent had the guidance in `provenance`, and count a use of each of its
        patterns."""
        if not provenance.get("guidance_applied"):
            return
        items = tuple(provenance["guidance_items"])
        refs = (ref.partition("#patterns/") for ref in items)
        self._profiles.record_uses(tx, ((leader, key) for leader, _, key in refs if key))
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

    def _make_guidance(
        self,
        lineage: Lineage,
        *,
        in_prompts: bool = True,
        excluded_lessons: frozenset[str] = frozenset(),
        edited_profile: LeaderProfile | None = None,
    ) -> Guidance:
        """Compose the guidance of an agent. An `edited_profile` replaces the stored one of its leader."""
        agent, chain, config = lineage.agent, lineage.chain, self._agents.config.current
        guidance = Guidance(
            agent.id, agent.tier, budget=config.m1_token_budget, chain=chain.leaders, chain_end=chain.words
        )
        guiding = [leader.id for leader in lineage.leaders if is_leader(leader.tier)]
        if is_leader(agent.tier):
            return replace(guidance, reason=f"tier {agent.tier} leads and receives no guidance")
        if in_prompts and not config.enable_m1:
            return replace(guidance, reason="enable_m1 is off in wisdom_cascade_config.json")
        if not guiding:
            return replace(guidance, reason="it has no leader: its chain " + chain.words)
        profiles = self._profiles.load(guiding)
        if edited_profile is not None and edited_profile.leader in profiles:
            profiles[edited_profile.leader] = edited_profile
        hops = [_make_hop(leader, distance) for distance, leader in enumerate(lineage.leaders)]
        block = compose(hops, profiles, guidance.budget, excluded_lessons)
        return replace(guidance, lines=block.lines, tokens=block.tokens, hops=block.hops, reason=block.why_empty)


class GuidancePart:
    """The part "guidance" of every prompt: the guidance of the agent's leaders."""

    name = "guidance"

    def __init__(
        self, cascade: Cascade, nearer_lessons: Callable[[PromptRequest], frozenset[str]] = lambda request: frozenset()
    ) -> None:
        """`nearer_lessons(request)` returns the lessons in parts of the prompt that are nearer to the agent."""
        self._cascade = cascade
        self._nearer_lessons = nearer_lessons

    def make_part(self, request: PromptRequest) -> Contribution:
        """The block for a request. Its notes name the leaders whose items did not fit. Raises `Refusal`
        `unknown_agent`."""
        guidance = self._compose_guidance(request)
        if guidance is None or not guidance.lines:
            return Contribution(None, guidance.provenance if guidance else {})
        notes = tuple(
            f"guidance of {hop.leader}: {len(hop.cut)} of its items had no room" for hop in guidance.hops if hop.cut
        )
        return Contribution(PromptPart(BLOCK_TAG, guidance.lines, tokens=guidance.tokens), guidance.provenance, notes)

    def lessons(self, request: PromptRequest) -> frozenset[str]:
        """The lessons in this part and those nearer to the agent."""
        guidance = self._compose_guidance(request)
        lessons = [item.lesson for hop in guidance.hops for item in hop.kept] if guidance else []
        return self._nearer_lessons(request).union(lessons)

    def _compose_guidance(self, request: PromptRequest) -> Guidance | None:
        if not request.agent:
            return None
        return self._cascade.guidance(request.agent, excluded_lessons=self._nearer_lessons(request))


def split_budget(distances: Sequence[int], budget: int) -> list[int]:
    """The token budget of each of the leaders at these distances. The sum is at most `budget`."""
    shares = [SHARES_BY_DISTANCE[min(distance, len(SHARES_BY_DISTANCE) - 1)] for distance in distances]
    return [int(budget * share / sum(shares)) for share in shares]


@frozen
class GuidanceBlock:
    """The lines of the block, its leaders with their items, and the number of its tokens."""

    lines: tuple[PromptLine, ...]
    hops: tuple[GuidanceHop, ...]
    tokens: int

    @property
    def why_empty(self) -> str:
        """The reason why it has no lines, "" if it has some."""
        if self.lines:
            return ""
        is_cut = any(hop.cut for hop in self.hops)
        return "no room within m1_token_budget" if is_cut else "its leaders have no guidance yet"


def compose(
    hops: Sequence[GuidanceHop],
    profiles: Mapping[str, LeaderProfile],
    budget: int,
    excluded_lessons: frozenset[str] = frozenset(),
) -> GuidanceBlock:
    """Compose a block of at most `budget` tokens. Without any item it has no lines.

    `hops` go from the direct leader upward. A leader without a profile in `profiles` contributes nothing. Items with
    `excluded_lessons` or with the lesson of a nearer leader are left out.
    """
    filled = _fill_shares(hops, profiles, budget, excluded_lessons)
    lines = _render_block(filled)
    while _count_tokens(lines) > budget:
        filled = _cut_last_item_of_farthest(filled)
        lines = _render_block(filled)
    return GuidanceBlock(tuple(lines), tuple(map(_add_result, filled)), _count_tokens(lines))


def _make_hop(leader: AgentTier, distance: int) -> GuidanceHop:
    """A leader of the chain, before it has items."""
    reason_without_items = "" if is_leader(leader.tier) else f"tier {leader.tier} gives no guidance"
    return GuidanceHop(leader.id, leader.tier, distance, why=reason_without_items)


def select_items(profile: LeaderProfile, distance: int = 0) -> list[GuidanceItem]:
    """The guidance of a leader at its distance, the most important first."""
    items: list[GuidanceItem] = []
    for section in SECTIONS_BY_DISTANCE[min(distance, len(SECTIONS_BY_DISTANCE) - 1)]:
        for key, text, sources, trust in [*_select_section_items(profile, section, key_only=distance > 0)][:MAX_ITEMS]:
            if line := clean_item(text):
                rendered = f"{'|' if section in INLINE_SECTIONS else '-'} {escape(line, quote=False)}"
                ref = f"{profile.leader}#{section}/{key}"
                items.append(GuidanceItem(section, ref, line, tokenizer.count(rendered), sources, trust))
    return items


def _select_section_items(
    profile: LeaderProfile, section: str, *, key_only: bool
) -> Iterator[tuple[str, str, tuple[PatternSource, ...], Trust]]:
    """(key, text, sources, trust) of each item of a section; with `key_only` only key patterns."""
    if section == "patterns":
        for pattern in profile.patterns[: MAX_KEY_PATTERNS if key_only else None]:
            yield pattern.key, pattern.text_with_name, pattern.sources, pattern.trust
    elif section == "recent-decisions":
        for decision in profile.decisions:
            yield decision.id, decision.text, (), decision.trust
    else:
        for number, text in enumerate(getattr(profile, section), 1):
            yield str(number), text, (), Trust.OPERATOR


def _fill_shares(
    hops: Sequence[GuidanceHop],
    profiles: Mapping[str, LeaderProfile],
    budget: int,
    excluded_lessons: frozenset[str],
) -> list[GuidanceHop]:
    """Give each leader with a profile the items that fit its share of the budget."""
    frame = tokenizer.count(f"<{BLOCK_TAG}>") + tokenizer.count(f"</{BLOCK_TAG}>")
    distances = [hop.hop for hop in hops if hop.leader in profiles]
    shares = dict(zip(distances, split_budget(distances, budget - frame), strict=True))
    filled = []
    for hop in hops:
        if hop.leader not in profiles:
            filled.append(hop)
            continue
        items = [item for item in select_items(profiles[hop.leader], hop.hop) if item.lesson not in excluded_lessons]
        with_items = _fill_share(replace(hop, share=max(0, shares[hop.hop])), items)
        excluded_lessons = excluded_lessons.union(item.lesson for item in with_items.kept)
        filled.append(with_items)
    return filled


def _fill_share(hop: GuidanceHop, items: Sequence[GuidanceItem]) -> GuidanceHop:
    """Give a leader the items that fit its share. A later, smaller item may fit where a larger one did not."""
    tokens = sum(map(tokenizer.count, _make_tags(hop)))
    kept: list[GuidanceItem] = []
    cut: list[GuidanceItem] = []
    for item in items:
        cost = item.tokens
        if all(item.section != kept_item.section for kept_item in kept):
            cost += tokenizer.count(f"<{item.section}>") + tokenizer.count(f"</{item.section}>")
        if tokens + cost <= hop.share:
            kept.append(item)
            tokens += cost
        else:
            cut.append(item)
    return replace(hop, kept=tuple(kept), cut=tuple(cut))


def _cut_last_item_of_farthest(hops: Sequence[GuidanceHop]) -> list[GuidanceHop]:
    """Leave out the last item of the farthest leader that has one."""
    farthest = max(hop.hop for hop in hops if hop.kept)
    return [
        replace(hop, kept=hop.kept[:-1], cut=(hop.kept[-1], *hop.cut)) if hop.hop == farthest else hop for hop in hops
    ]


def _add_result(hop: GuidanceHop) -> GuidanceHop:
    """A leader with the tokens of its items in the block, or with the reason why it has none there."""
    if hop.kept:
        return replace(hop, tokens=_count_tokens(_render_leader(hop)))
    return replace(hop, why=hop.why or ("no room in its share" if hop.cut else "it has no guidance"))


def _count_tokens(lines: Sequence[PromptLine]) -> int:
    return tokenizer.count("\n".join(line.text for line in lines)) if lines else 0


def _render_block(hops: Sequence[GuidanceHop]) -> list[PromptLine]:
    """The lines of the block; none if no leader has an item."""
    lines = [line for hop in hops if hop.kept for line in _render_leader(hop)]
    return [PromptLine(f"<{BLOCK_TAG}>", OWN_TEXT), *lines, PromptLine(f"</{BLOCK_TAG}>", OWN_TEXT)] if lines else []


def _render_leader(hop: GuidanceHop) -> list[PromptLine]:
    opening, closing = _make_tags(hop)
    lines = [PromptLine(f"  {opening}", OWN_TEXT)]
    for section in SECTION_ORDER:
        items = [item for item in hop.kept if item.section == section]
        if items:
            lines += _render_section(hop, section, items)
    return [*lines, PromptLine(f"  {closing}", OWN_TEXT)]


def _render_section(hop: GuidanceHop, section: str, items: Sequence[GuidanceItem]) -> list[PromptLine]:
    texts = [escape(format_item(item), quote=False) for item in items]
    if section in INLINE_SECTIONS:
        source = _make_source(f"{hop.leader}#{section}", hop, find_lowest_trust(item.trust for item in items))
        return [PromptLine(f"    <{section}>{' | '.join(texts)}</{section}>", source)]
    sources = [_make_source(item.ref, hop, item.trust) for item in items]
    item_lines = [PromptLine(f"      - {text}", source) for text, source in zip(texts, sources, strict=True)]
    return [PromptLine(f"    <{section}>", OWN_TEXT), *item_lines, PromptLine(f"    </{section}>", OWN_TEXT)]


def format_item(item: GuidanceItem) -> str:
    """The text of an item; a quote says that the operator approved it."""
    return mark_approved(item.text, is_quote=item.trust is Trust.QUOTED)


def _make_tags(hop: GuidanceHop) -> tuple[str, str]:
    from xml.sax.saxutils import quoteattr  # not before the first prompt: it imports an HTTP client

    return f'<leader id={quoteattr(hop.leader)} tier="{hop.tier}" hop="{hop.hop}">', "</leader>"


def _make_source(ref: str, hop: GuidanceHop, trust: Trust) -> PromptSource:
    return PromptSource(SourceKind.LEADER, ref, f"{hop.leader}, {hop.hop + 1} up", trust, trust is Trust.QUOTED)
