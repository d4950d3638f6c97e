"""The bubble filter (SPEC 1.7): seven gates between what a worker found out and its leader, each with a name. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.tiers import capabilities
from engine.values import GateResult, Learning

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


def similar(one: str, other: str) -> bool:
    """Whether both say the same."""
    return similarity(one, other) >= SIMILAR


def known_as(text: str, patterns: tuple[tuple[str, str], ...]) -> str:
    """The key of the pattern that says this already, the most similar one; "" when none does."""
    best = max(((similarity(text, said), key) for key, said in patterns), default=(0.0, ""))
    return best[1] if best[0] >= SIMILAR else ""


def relevant(category: str, domain: str) -> tuple[bool, str]:
    """Whether a learning of this category concerns a leader of this domain, and why (SPEC 1.7)."""
    held = domain.strip().lower()
    if held in GENERIC:
        return True, f"{held} takes everything"
    wanted, own = set(_WORD.findall(category.lower())), set(_WORD.findall(held))
    if not wanted:
        return False, "it has no category, and goes to generic leaders only"
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

    def ask(passed: bool, reason: str) -> bool:
        results.append(GateResult(len(results) + 1, GATES[len(results)], passed, reason))
        return passed

    sure, weight = learning.confidence, learning.importance
    least, lightest = config.bubble_min_confidence, config.bubble_min_importance
    bubbling = config.enable_upward_bubbling
    if not ask(bubbling, "bubbling is on" if bubbling else "enable_upward_bubbling is off"):
        return tuple(results)
    if not ask(sure.value >= least, f"{sure.value:.2f} of {least:.2f}: {'; '.join(sure.reasons)}"):
        return tuple(results)
    if not ask(weight.value >= lightest, f"{weight.value:.2f} of {lightest:.2f}: {'; '.join(weight.reasons)}"):
        return tuple(results)
    if not ask(capabilities(tier).can_bubble, f"tier {tier} {'is' if tier >= 4 else 'leads and is not'} a worker"):
        return tuple(results)
    if leader is None:
        ask(False, missing)
        return tuple(results)
    synced = capabilities(leader.tier).cloud_synced
    if not ask(synced, f"{leader.id}, tier {leader.tier}, {'is' if synced else 'is not'} synced"):
        return tuple(results)
    passed, why = relevant(learning.category, leader.domain)
    if not ask(passed, why):
        return tuple(results)
    known = known_as(learning.text, leader.patterns)
    ask(not known, f"{leader.id} knows it as {known}" if known else f"new to {leader.id}")
    return tuple(results)
