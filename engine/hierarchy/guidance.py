"""Guidance of leaders in every prompt of an agent (M1; SPEC 1.4, 1.5, 1.10). `guidance_block` composes it.

A block is cached for `m1_cache_ttl_seconds`. It is rendered again at once if a folder of the chain, a leader's
`soul.md`, the settings or a profile changed. The check takes a few dozen `stat` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engine.clock import Clock
from engine.events import GuidanceApplied
from engine.files import file_signature
from engine.hierarchy.agents import Agents
from engine.hierarchy.guidance_block import BLOCK, compose
from engine.hierarchy.profiles import Profiles
from engine.hierarchy.tiers import Lineage, is_leader
from engine.model import (
    Contribution,
    Guidance,
    GuidanceHop,
    LeaderProfile,
    MovePreview,
    ProfileEdit,
    ProfilePreview,
    PromptPart,
    PromptRequest,
)
from engine.storage.database import Transaction

MAX_CACHED = 4_000


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
        basis = (config, lineage, self._profiles.generation, *souls)
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
