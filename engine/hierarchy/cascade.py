"""Guidance of leaders in every prompt of an agent (M1; SPEC 1.4, 1.5, 1.10), cached.

A cached block is made again after `m1_cache_ttl_seconds`, and at once when a folder of the chain, a leader's
`soul.md`, the settings or a profile changed. The check costs a few dozen `stat` calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from engine import tokenizer
from engine.clock import Clock
from engine.events import GuidanceApplied
from engine.frozen import frozen
from engine.hierarchy.agents import Agents
from engine.hierarchy.cascade_config import CascadeConfig, file_signature
from engine.hierarchy.guidance import BLOCK, Speaker, compose
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.tiers import Lineage, is_leader
from engine.model import (
    Contribution,
    Guidance,
    LeaderProfile,
    MovePreview,
    ProfileEdit,
    ProfilePreview,
    PromptPart,
    PromptRequest,
    Refusal,
)
from engine.storage.database import Transaction

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
