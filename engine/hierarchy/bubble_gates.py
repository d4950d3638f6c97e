"""The seven gates that a finding must pass on its way up to a leader (SPEC 1.7). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.frozen import frozen
from engine.hierarchy.cascade_config import CascadeConfig
from engine.hierarchy.tiers import is_leader
from engine.model import GateResult, Learning
from engine.model.lessons import lesson_id
from engine.model.text import jaccard

MIN_SIMILARITY = 0.6
"""Minimum similarity of two texts that are the same."""

GENERIC_DOMAINS = frozenset({"executive", "general", "operations"})
"""Domains that include everything."""

GATES = ("enabled", "confidence", "importance", "tier", "leader", "domain", "novelty")

_TOKEN = re.compile(r"[a-z0-9_]{3,}")
_WORD = re.compile(r"[^\W_]+")


@frozen
class DirectLeader:
    """A worker's direct leader. `patterns` are (key, text)."""

    id: str
    tier: int
    domain: str
    patterns: tuple[tuple[str, str], ...] = ()


def similarity(text: str, other: str) -> float:
    """Jaccard over lower-case tokens `[a-z0-9_]{3,}`, 0 to 1; two texts without tokens are not similar: 0."""
    return jaccard(_TOKEN.findall(text.lower()), _TOKEN.findall(other.lower()))


def find_pattern(text: str, patterns: tuple[tuple[str, str], ...]) -> str:
    """The key of the most similar pattern, "" if none is similar enough."""
    lesson = lesson_id(text)
    scored = ((1.0 if key == lesson else similarity(text, pattern_text), key) for key, pattern_text in patterns)
    best = max(scored, default=(0.0, ""))
    return best[1] if best[0] >= MIN_SIMILARITY else ""


def is_relevant(category: str, domain: str) -> tuple[bool, str]:
    """(whether a learning of this category is relevant to a leader of this domain, reason) (SPEC 1.7)."""
    leader_domain = domain.strip().lower()
    if leader_domain in GENERIC_DOMAINS:
        return True, f"{leader_domain} accepts everything"
    words, domain_words = set(_WORD.findall(category.lower())), set(_WORD.findall(leader_domain))
    if not words:
        return False, "it has no category, so only generic leaders receive it"
    if not domain_words:
        return True, "the leader has no domain"
    shared = sorted(words & domain_words)
    if shared:
        return True, f"shares {', '.join(shared)}"
    return False, f"{category!r} shares no word with {domain!r}"


def ask_gates(
    learning: Learning, *, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> tuple[GateResult, ...]:
    """Ask the gates in order until one refuses; there are seven results if all pass. `tier` is the worker's; `missing`
    says why it has no direct leader, if it has none."""
    results: list[GateResult] = []
    for answer in _gate_results(learning, tier, leader, missing, config):
        results.append(GateResult(len(results) + 1, GATES[len(results)], *answer))
        if not answer[0]:
            break
    return tuple(results)


def _gate_results(
    learning: Learning, tier: int, leader: DirectLeader | None, missing: str, config: CascadeConfig
) -> Iterator[tuple[bool, str]]:
    """(whether it passes, reason) of each gate, in order."""
    bubbling = config.enable_upward_bubbling
    yield bubbling, "sending up is on" if bubbling else "enable_upward_bubbling is off"
    scores = (learning.confidence, config.bubble_min_confidence), (learning.importance, config.bubble_min_importance)
    for score, minimum in scores:
        yield score.value >= minimum, f"{score.value:.2f} of {minimum:.2f}: {'; '.join(score.reasons)}"
    works = not is_leader(tier)
    yield works, f"tier {tier} {'is' if works else 'leads and is not'} a worker"
    if leader is None:
        yield False, missing
        return
    synced = is_leader(leader.tier)
    yield synced, f"{leader.id}, tier {leader.tier}, {'is' if synced else 'is not'} synced"
    yield is_relevant(learning.category, leader.domain)
    duplicate = find_pattern(learning.text, leader.patterns)
    yield not duplicate, f"{leader.id} already has it as {duplicate}" if duplicate else f"new to {leader.id}"
