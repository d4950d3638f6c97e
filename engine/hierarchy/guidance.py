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
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from engine import tokenizer
from engine.clock import Clock
from engine.events import GuidanceApplied
from engine.files import file_signature
from engine.hierarchy.agents import Agents
from engine.hierarchy.profile_items import item_text
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.tiers import Lineage, is_leader
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
from engine.model.base import lowest_trust
from engine.model.prompts import OWN_TEXT
from engine.model.text import approved_text
from engine.storage.database import Transaction

BLOCK = "leadership-guidance"
RATIOS = (1.0, 0.6, 0.3)
"""The relative shares of the budget: of the direct leader, of the next one, and of each leader above."""

SECTIONS_BY_HOP = (
    ("principles", "guardrails", "patterns", "recent-decisions"),
    ("principles", "patterns"),
    ("principles",),
)
"""The sections of a leader's guidance at each distance, the most important first."""

MAX_KEY_PATTERNS = 5
"""Maximum number of key patterns of a leader's leader. The most used patterns come first, then the newest."""

MAX_ITEMS = 60
"""Maximum number of items of one section in guidance; a profile may have more."""

MAX_CACHED = 4_000

SECTION_ORDER = ("principles", "patterns", "guardrails", "recent-decisions")
INLINE_SECTIONS = ("principles", "recent-decisions")
"""Sections whose items are on one line, separated by a bar."""


# -- the block, pure


def budget_shares(hops: Sequence[int], budget: int) -> list[int]:
    """The token budget of each of the leaders at these distances. The sum is at most `budget`."""
    ratios = [RATIOS[min(hop, len(RATIOS) - 1)] for hop in hops]
    return [int(budget * ratio / sum(ratios)) for ratio in ratios]


def compose(
    hops: Sequence[GuidanceHop],
    profiles: Mapping[str, LeaderProfile],
    budget: int,
    excluded_lessons: frozenset[str] = frozenset(),
) -> tuple[list[PromptLine], list[GuidanceHop], int]:
    """(lines of the block, its leaders with their items, number of its tokens, which is at most `budget`).

    `hops` go from the direct leader upward. A leader without a profile in `profiles` contributes nothing. Items with
    `excluded_lessons` or with the lesson of a nearer leader are left out. Without any item there are no lines.
    """
    frame = tokenizer.count(f"<{BLOCK}>") + tokenizer.count(f"</{BLOCK}>")
    speaking = [hop.hop for hop in hops if hop.leader in profiles]
    shares = dict(zip(speaking, budget_shares(speaking, budget - frame), strict=True))
    filled = []
    for hop in hops:
        if hop.leader in profiles:
            items = guidance_items(profiles[hop.leader], hop.hop)
            hop = _fill(replace(hop, share=max(0, shares[hop.hop])), items, excluded_lessons)
            excluded_lessons = excluded_lessons.union(item.lesson for item in hop.kept)
        filled.append(hop)
    while True:
        lines = [line for hop in filled if hop.kept for line in _render(hop)]
        if lines:
            lines = [PromptLine(f"<{BLOCK}>", OWN_TEXT), *lines, PromptLine(f"</{BLOCK}>", OWN_TEXT)]
        tokens = _count(lines)
        if tokens <= budget:
            return lines, list(map(_with_result, filled)), tokens
        farthest = max(place for place, hop in enumerate(filled) if hop.kept)
        *kept, dropped = filled[farthest].kept
        filled[farthest] = replace(filled[farthest], kept=tuple(kept), cut=(dropped, *filled[farthest].cut))


def guidance_items(profile: LeaderProfile, hop: int = 0) -> list[GuidanceItem]:
    """The guidance of a leader at its distance, the most important first."""
    items: list[GuidanceItem] = []
    for section in SECTIONS_BY_HOP[min(hop, len(SECTIONS_BY_HOP) - 1)]:
        for key, text, sources, trust in [*_section_items(profile, section, key_only=hop > 0)][:MAX_ITEMS]:
            if line := item_text(text):
                rendered = f"{'|' if section in INLINE_SECTIONS else '-'} {escape(line)}"
                ref = f"{profile.leader}#{section}/{key}"
                items.append(GuidanceItem(section, ref, line, tokenizer.count(rendered), sources, trust))
    return items


def _section_items(
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


def _fill(hop: GuidanceHop, items: Sequence[GuidanceItem], excluded_lessons: frozenset[str]) -> GuidanceHop:
    """Give a leader the items that fit its share. A later, smaller item may fit where a larger one did not."""
    tokens = sum(map(tokenizer.count, _tags(hop)))
    kept: list[GuidanceItem] = []
    cut: list[GuidanceItem] = []
    for item in items:
        if item.lesson in excluded_lessons:
            continue
        cost = item.tokens
        if all(item.section != kept_item.section for kept_item in kept):
            cost += tokenizer.count(f"<{item.section}>") + tokenizer.count(f"</{item.section}>")
        has_room = tokens + cost <= hop.share
        (kept if has_room else cut).append(item)
        tokens += cost if has_room else 0
    return replace(hop, kept=tuple(kept), cut=tuple(cut))


def _with_result(hop: GuidanceHop) -> GuidanceHop:
    """A leader with the tokens of its items in the block, or with the reason why it has none there."""
    if hop.kept:
        return replace(hop, tokens=_count(_render(hop)))
    return replace(hop, why=hop.why or ("no room in its share" if hop.cut else "it has no guidance"))


def _count(lines: Sequence[PromptLine]) -> int:
    return tokenizer.count("\n".join(line.text for line in lines)) if lines else 0


def _render(hop: GuidanceHop) -> list[PromptLine]:
    opening, closing = _tags(hop)
    lines = [PromptLine(f"  {opening}", OWN_TEXT)]
    for section in SECTION_ORDER:
        items = [item for item in hop.kept if item.section == section]
        texts = [escape(with_approval(item)) for item in items]
        if items and section in INLINE_SECTIONS:
            source = _source(f"{hop.leader}#{section}", hop, lowest_trust(item.trust for item in items))
            lines.append(PromptLine(f"    <{section}>{' | '.join(texts)}</{section}>", source))
        elif items:
            sources = [_source(item.ref, hop, item.trust) for item in items]
            lines.append(PromptLine(f"    <{section}>", OWN_TEXT))
            lines += [PromptLine(f"      - {text}", source) for text, source in zip(texts, sources, strict=True)]
            lines.append(PromptLine(f"    </{section}>", OWN_TEXT))
    return [*lines, PromptLine(f"  {closing}", OWN_TEXT)]


def with_approval(item: GuidanceItem) -> str:
    """The text of an item; a quote says that the operator approved it."""
    return approved_text(item.text, is_quote=item.trust is Trust.QUOTED)


def _tags(hop: GuidanceHop) -> tuple[str, str]:
    return f'<leader id={quoteattr(hop.leader)} tier="{hop.tier}" hop="{hop.hop}">', "</leader>"


def _source(ref: str, hop: GuidanceHop, trust: Trust) -> PromptSource:
    return PromptSource(SourceKind.LEADER, ref, f"{hop.leader}, {hop.hop + 1} up", trust, trust is Trust.QUOTED)


# -- guidance of an agent


class Cascade:
    """Guidance for agents. Thread-safe."""

    def __init__(self, agents: Agents, profiles: Profiles, *, clock: Clock) -> None:
        self._agents = agents
        self._profiles = profiles
        self._clock = clock
        self._cache: dict[tuple[str, bool, frozenset[str]], tuple[tuple[Any, ...], datetime, Guidance]] = {}
        """(versions of everything that a block was made of, time until which it is used, block)."""

    def guidance(
        self, agent_id: str, *, in_prompts: bool = True, excluded_lessons: frozenset[str] = frozenset()
    ) -> Guidance:
        """The guidance in the next prompt of this agent. With `in_prompts` False, it is returned even if `enable_m1` is
        off. `excluded_lessons` are in other parts of the prompt already. Raises `Refusal` `unknown_agent`."""
        config = self._agents.config.current
        lineage = self._agents.lineage(agent_id)
        souls = [file_signature(self._agents.soul_file(leader.id)) for leader in lineage.leaders]
        basis = (config, lineage, self._profiles.version, *souls)
        name, now = (agent_id, in_prompts, excluded_lessons), self._clock.now()
        cached = self._cache.get(name)
        if cached is not None and cached[0] == basis and now < cached[1]:
            return cached[2]
        guidance = self._make(lineage, in_prompts=in_prompts, excluded_lessons=excluded_lessons)
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[name] = basis, now + timedelta(seconds=config.m1_cache_ttl_seconds), guidance
        return guidance

    def preview_move(self, agent_id: str, reports_to: str) -> MovePreview:
        """The agent's guidance now, and after a move to `reports_to`. Raises as `Agents.move`."""
        after = self._make(self._agents.lineage(agent_id, under=reports_to))
        return MovePreview(agent_id, self.guidance(agent_id), after)

    def preview_edits(self, leader: str, edits: Sequence[ProfileEdit]) -> ProfilePreview:
        """The profile of a leader after these edits, and the agents whose prompts change. Raises `Refusal` as
        `Profiles.edit`."""
        profile = self._profiles.preview(leader, edits)
        emptied = (edit.section for edit in edits if not edit.value and not edit.key)
        from_soul = tuple(section for section in emptied if getattr(profile, section))
        previews = []
        for agent_id in self._agents.ids():
            lineage = self._agents.lineage(agent_id)
            if leader in lineage.chain.leaders:
                before, after = self._make(lineage), self._make(lineage, instead=profile)
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

    def _make(
        self,
        lineage: Lineage,
        *,
        in_prompts: bool = True,
        excluded_lessons: frozenset[str] = frozenset(),
        instead: LeaderProfile | None = None,
    ) -> Guidance:
        """`instead` replaces the profile of its leader."""
        agent, chain, config = lineage.agent, lineage.chain, self._agents.config.current
        guidance = Guidance(
            agent.id, agent.tier, budget=config.m1_token_budget, chain=chain.leaders, chain_end=chain.words
        )
        emitting = [leader.id for leader in lineage.leaders if is_leader(leader.tier)]
        if is_leader(agent.tier):
            return replace(guidance, reason=f"tier {agent.tier} leads and receives no guidance")
        if in_prompts and not config.enable_m1:
            return replace(guidance, reason="enable_m1 is off in wisdom_cascade_config.json")
        if not emitting:
            return replace(guidance, reason="it has no leader: its chain " + chain.words)
        profiles = self._profiles.load(emitting)
        if instead is not None and instead.leader in profiles:
            profiles[instead.leader] = instead
        leaders = [
            GuidanceHop(
                leader.id,
                leader.tier,
                hop,
                why="" if leader.id in profiles else f"tier {leader.tier} gives no guidance",
            )
            for hop, leader in enumerate(lineage.leaders)
        ]
        lines, hops, tokens = compose(leaders, profiles, guidance.budget, excluded_lessons)
        is_cut = any(hop.cut for hop in hops)
        reason = "no room within m1_token_budget" if is_cut else "its leaders have no guidance yet"
        return replace(guidance, lines=tuple(lines), tokens=tokens, hops=tuple(hops), reason="" if lines else reason)


class LeadershipGuidance:
    """The part "guidance" of every prompt: the guidance of the agent's leaders."""

    name = "guidance"

    def __init__(
        self, cascade: Cascade, nearer: Callable[[PromptRequest], frozenset[str]] = lambda request: frozenset()
    ) -> None:
        """`nearer(request)` returns the lessons in parts of the prompt that are nearer to the agent."""
        self._cascade = cascade
        self._nearer = nearer

    def part(self, request: PromptRequest) -> Contribution:
        """The block for a request. Its notes name the leaders whose items did not fit. Raises `Refusal`
        `unknown_agent`."""
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
