"""Composes the block of leaders' guidance within its token budget (SPEC 1.4, 1.5). Pure.

The direct leader contributes everything, the next leader principles and key patterns, and leaders above only
principles. Each has a share of the token budget. Items that do not fit the share are left out whole. If the rendered
block is still too long, items of the farthest leader are left out first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from xml.sax.saxutils import escape, quoteattr

from engine import tokenizer
from engine.hierarchy.profile_items import item_text
from engine.model import (
    GuidanceHop,
    GuidanceItem,
    LeaderProfile,
    PatternSource,
    PromptLine,
    PromptSource,
    SourceKind,
    Trust,
)
from engine.model.base import lowest_trust
from engine.model.prompts import OWN_TEXT
from engine.model.text import approved_text

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

SECTION_ORDER = ("principles", "patterns", "guardrails", "recent-decisions")
INLINE_SECTIONS = ("principles", "recent-decisions")
"""Sections whose items are on one line, separated by a bar."""


def split_budget(hops: Sequence[int], budget: int) -> list[int]:
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
    shares = dict(zip(speaking, split_budget(speaking, budget - frame), strict=True))
    filled = []
    for hop in hops:
        if hop.leader in profiles:
            items = select_items(profiles[hop.leader], hop.hop)
            hop = _fill(replace(hop, share=max(0, shares[hop.hop])), items, excluded_lessons)
            excluded_lessons = excluded_lessons.union(item.lesson for item in hop.kept)
        filled.append(hop)
    while True:
        lines = [line for hop in filled if hop.kept for line in _render(hop)]
        if lines:
            lines = [PromptLine(f"<{BLOCK}>", OWN_TEXT), *lines, PromptLine(f"</{BLOCK}>", OWN_TEXT)]
        tokens = _count_tokens(lines)
        if tokens <= budget:
            return lines, list(map(_with_result, filled)), tokens
        farthest = max(place for place, hop in enumerate(filled) if hop.kept)
        *kept, dropped = filled[farthest].kept
        filled[farthest] = replace(filled[farthest], kept=tuple(kept), cut=(dropped, *filled[farthest].cut))


def select_items(profile: LeaderProfile, hop: int = 0) -> list[GuidanceItem]:
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
    tokens = sum(map(tokenizer.count, _make_tags(hop)))
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
        return replace(hop, tokens=_count_tokens(_render(hop)))
    return replace(hop, why=hop.why or ("no room in its share" if hop.cut else "it has no guidance"))


def _count_tokens(lines: Sequence[PromptLine]) -> int:
    return tokenizer.count("\n".join(line.text for line in lines)) if lines else 0


def _render(hop: GuidanceHop) -> list[PromptLine]:
    opening, closing = _make_tags(hop)
    lines = [PromptLine(f"  {opening}", OWN_TEXT)]
    for section in SECTION_ORDER:
        items = [item for item in hop.kept if item.section == section]
        texts = [escape(format_item(item)) for item in items]
        if items and section in INLINE_SECTIONS:
            source = _make_source(f"{hop.leader}#{section}", hop, lowest_trust(item.trust for item in items))
            lines.append(PromptLine(f"    <{section}>{' | '.join(texts)}</{section}>", source))
        elif items:
            sources = [_make_source(item.ref, hop, item.trust) for item in items]
            lines.append(PromptLine(f"    <{section}>", OWN_TEXT))
            lines += [PromptLine(f"      - {text}", source) for text, source in zip(texts, sources, strict=True)]
            lines.append(PromptLine(f"    </{section}>", OWN_TEXT))
    return [*lines, PromptLine(f"  {closing}", OWN_TEXT)]


def format_item(item: GuidanceItem) -> str:
    """The text of an item; a quote says that the operator approved it."""
    return approved_text(item.text, is_quote=item.trust is Trust.QUOTED)


def _make_tags(hop: GuidanceHop) -> tuple[str, str]:
    return f'<leader id={quoteattr(hop.leader)} tier="{hop.tier}" hop="{hop.hop}">', "</leader>"


def _make_source(ref: str, hop: GuidanceHop, trust: Trust) -> PromptSource:
    return PromptSource(SourceKind.LEADER, ref, f"{hop.leader}, {hop.hop + 1} up", trust, trust is Trust.QUOTED)
