"""The seven gates that a finding must pass on its way to a leader (SPEC 1.7). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.tiers import AgentTier, is_leader
from engine.model import GateResult, LeaderProfile, Learning, Pattern
from engine.model.lessons import lesson_id
from engine.model.text import jaccard

MIN_SIMILARITY = 0.6
"""Minimum similarity of two texts that are the same."""

GENERIC_DOMAINS = frozenset({"executive", "general", "operations"})
"""Domains to which every category belongs."""

GATES = ("enabled", "confidence", "importance", "tier", "leader", "domain", "novelty")

_TOKEN = re.compile(r"[a-z0-9_]{3,}")
_WORD = re.compile(r"[^\W_]+")


def similarity(text: str, other: str) -> float:
    """The Jaccard similarity of the lower-case tokens `[a-z0-9_]{3,}` of two texts, 0 to 1; 0 for two texts without
    tokens."""
    return jaccard(_TOKEN.findall(text.lower()), _TOKEN.findall(other.lower()))


def find_pattern(text: str, patterns: Sequence[Pattern]) -> Pattern | None:
    """The most similar pattern, None if none is similar enough."""
    lesson = lesson_id(text)
    scores = {pattern.key: 1.0 if pattern.key == lesson else similarity(text, pattern.text) for pattern in patterns}
    best = max(patterns, key=lambda pattern: (scores[pattern.key], pattern.key), default=None)
    return best if best is not None and scores[best.key] >= MIN_SIMILARITY else None


def is_relevant(category: str, domain: str) -> tuple[bool, str]:
    """(whether a learning of this category is relevant to a leader of this domain, reason) (SPEC 1.7)."""
    leader_domain = domain.strip().lower()
    if leader_domain in GENERIC_DOMAINS:
        return True, f"{leader_domain} accepts everything"
    words, domain_words = set(_WORD.findall(category.lower())), set(_WORD.findall(leader_domain))
    shared = sorted(words & domain_words)
    if not words:
        return False, "it has no category, so only generic leaders receive it"
    if not domain_words:
        return True, "the leader has no domain"
    return bool(shared), f"shares {', '.join(shared)}" if shared else f"{category!r} shares no word with {domain!r}"


def ask_gates(
    learning: Learning,
    *,
    tier: int,
    leader: AgentTier | None,
    profile: LeaderProfile,
    missing: str,
    config: CascadeConfig,
) -> tuple[GateResult, ...]:
    """Ask the gates in order until one refuses. If all pass, there are seven results. `tier` is that of the worker, and
    `profile` that of its direct leader. `missing` says why the worker has no direct leader, "" if it has one."""

    def answers() -> Iterator[tuple[bool, str]]:
        """(whether the learning passes, reason) of each gate in turn."""
        is_enabled = config.enable_upward_bubbling
        yield is_enabled, "sending up is on" if is_enabled else "enable_upward_bubbling is off"
        minima = config.bubble_min_confidence, config.bubble_min_importance
        for score, minimum in zip((learning.confidence, learning.importance), minima, strict=True):
            yield score.value >= minimum, f"{score.value:.2f} of {minimum:.2f}: {'; '.join(score.reasons)}"
        is_worker = not is_leader(tier)
        yield is_worker, f"tier {tier} {'is' if is_worker else 'leads and is not'} a worker"
        if leader is None:
            yield False, missing
            return
        is_synced = is_leader(leader.tier)
        yield is_synced, f"{leader.id}, tier {leader.tier}, {'is' if is_synced else 'is not'} synced"
        yield is_relevant(learning.category, profile.domain or leader.domain)
        pattern = find_pattern(learning.text, profile.patterns)
        yield pattern is None, f"{leader.id} already has it as {pattern.key}" if pattern else f"new to {leader.id}"

    results: list[GateResult] = []
    for number, (passed, reason) in enumerate(answers(), 1):
        results.append(GateResult(number, GATES[number - 1], passed, reason))
        if not passed:
            break
    return tuple(results)
