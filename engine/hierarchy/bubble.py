"""The bubble filter (SPEC 1.7): seven gates between what a worker found out and its leader, each with a name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.tiers import capabilities
from engine.model import GateResult, Learning
from engine.model.lessons import lesson_id

SIMILAR = 0.6
"""From this overlap on two texts say the same."""

GENERIC = frozenset({"executive", "general", "operations"})
"""Domains that everything belongs to."""

GATES = ("enabled", "confidence", "importance", "tier", "leader", "domain", "novelty")

_TOKEN = re.compile(r"[a-z0-9_]{3,}")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class DirectLeader:
    """The worker's direct leader: its tier, its domain, and the texts of its patterns by key."""

    id: str
    tier: int
    domain: str
    patterns: tuple[tuple[str, str], ...] = ()


def similarity(one: str, other: str) -> float:
    """Jaccard over lower-case tokens `[a-z0-9_]{3,}`, 0 to 1; two texts without tokens are not similar: 0."""
    first, second = set(_TOKEN.findall(one.lower())), set(_TOKEN.findall(other.lower()))
    union = len(first | second)
    return len(first & second) / union if union else 0.0


def known_as(text: str, patterns: tuple[tuple[str, str], ...]) -> str:
    """The key of the pattern that says this already, the most similar one; "" when none does."""
    lesson = lesson_id(text)
    scored = ((1.0 if key == lesson else similarity(text, said), key) for key, said in patterns)
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= SIMILAR else ""


def relevant(category: str, domain: str) -> tuple[bool, str]:
    """Whether a learning of this category concerns a leader of this domain, and why (SPEC 1.7)."""
    held = domain.strip().lower()
    if held in GENERIC:
        return True, f"{held} accepts everything"
    wanted, own = set(_WORD.findall(category.lower())), set(_WORD.findall(held))
    if not wanted:
        return False, "it has no category, so only generic leaders receive it"
    if not own:
        return True, "the leader has no domain"
    shared = sorted(wanted & own)
    if shared:
        return True, f"shares {', '.join(shared)}"
    return False, f"{category!r} shares no word with {domain!r}"


def judge(
    learning: Learning, *, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> tuple[GateResult, ...]:
    """Ask the gates in their order until one says no. `tier` is the worker's; `missing` says why it has no direct
    leader, when it has none. All passed: seven results, the last one too."""
    results: list[GateResult] = []
    for answer in _answers(learning, tier, leader, missing, config):
        results.append(GateResult(len(results) + 1, GATES[len(results)], *answer))
        if not answer[0]:
            break
    return tuple(results)


def _answers(
    learning: Learning, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> Iterator[tuple[bool, str]]:
    """Whether each gate lets it pass, and why, in their order."""
    bubbling = config.enable_upward_bubbling
    yield bubbling, "sending up is on" if bubbling else "enable_upward_bubbling is off"
    scores = (learning.confidence, config.bubble_min_confidence), (learning.importance, config.bubble_min_importance)
    for score, least in scores:
        yield score.value >= least, f"{score.value:.2f} of {least:.2f}: {'; '.join(score.reasons)}"
    works = capabilities(tier).can_bubble
    yield works, f"tier {tier} {'is' if works else 'leads and is not'} a worker"
    if leader is None:
        yield False, missing
        return
    synced = capabilities(leader.tier).cloud_synced
    yield synced, f"{leader.id}, tier {leader.tier}, {'is' if synced else 'is not'} synced"
    yield relevant(learning.category, leader.domain)
    known = known_as(learning.text, leader.patterns)
    yield not known, f"{leader.id} already has it as {known}" if known else f"new to {leader.id}"
