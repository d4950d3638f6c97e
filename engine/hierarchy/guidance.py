"""Selects and renders the guidance that goes into a prompt (SPEC 1.5). Pure.

The direct leader contributes everything, the next one principles and key patterns, those above principles only. Each
has a share of the token budget and drops whole items to keep it. If the rendered block is still too long, items of the
farthest leader are dropped first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from engine.frozen import frozen
from engine.hierarchy.profile_text import item_text
from engine.model import (
    GuidanceHop,
    GuidanceItem,
    LeaderProfile,
    Pattern,
    PatternSource,
    PromptLine,
    PromptSource,
    SourceKind,
    Trust,
)
from engine.model.agents import OWN_TEXT
from engine.model.text import approved_text
from engine.model.trust import lowest_trust

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
