"""Which proposals may be shown, and where the operator's taste moves them (SPEC 2.5, 2.9, 2.11). Pure.

While nothing is learnt yet, all of them. From phase 1 on what is below the lowest band is left out, unless something is
broken, the operator ordered it, or it is the next step after work that ended. In one cycle of `EXPLORED_IN` a card of a
kind that is not known yet is shown all the same, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.model import Band, Randomness, Source, Tier
from engine.model.shares import wilson_lower_bound
from engine.prediction.confidence import LIKE_APPROVED_FROM, band_of
from engine.prediction.intake import Draft
from engine.prediction.kinds import is_ordered

EXPLORED_IN = 10
"""In one cycle of so many a card is shown to learn something."""

EXPLORED_BELOW = 3
"""A kind that people decided on so often, in whatever workspace, is known: it is not explored any more."""

Decided = Mapping[tuple[str, str], tuple[int, int]]
"""By workspace and kind: how many cards the operator approved, and how many were decided on."""


def shown(drafts: Sequence[Draft], known: Mapping[str, int], *, learning: bool, randomness: Randomness) -> list[Draft]:
    """The drafts that may be shown. `known`: how many cards of a kind were decided on. `learning`: phase 1 or later."""
    if not learning:
        return list(drafts)
    kept = [one for one in drafts if _certain(one) or band_of(one.parts.total) is not Band.DISCARDED]
    unknown = [one for one in drafts if one not in kept and known.get(one.proposal.kind, 0) < EXPLORED_BELOW]
    if unknown and randomness.uniform() * EXPLORED_IN < 1:
        kind = randomness.pick(dict.fromkeys(sorted({one.proposal.kind for one in unknown}), 1.0))
        drawn = max((one for one in unknown if one.proposal.kind == kind), key=lambda one: one.parts.total)
        words = (*drawn.parts.words, f"shown to learn whether you want it, as in one of {EXPLORED_IN} rounds")
        kept.append(replace(drawn, parts=replace(drawn.parts, words=words)))
    return kept


def _certain(draft: Draft) -> bool:
    """What is shown whatever its confidence."""
    one = draft.proposal
    return draft.tier is Tier.BROKEN or is_ordered(one.kind) or one.source is Source.FOLLOW_UP


def moved(tier: Tier, approved: int, decided: int) -> tuple[Tier, str]:
    """The tier that the operator's taste gives to a kind in a workspace, and why, "" when it stays (SPEC 2.11).

    One up where the one-sided 95 % Wilson bound of the share approved is at least 0.8 (from 11 of 11 on), one down
    where that of the share dismissed is. What is broken is a fact: nothing moves into tier 1 or out of it.
    """
    told = f"you approved {approved} of {decided} like it"
    if tier in (Tier.CHECK, Tier.UPKEEP) and wilson_lower_bound(approved, decided) >= LIKE_APPROVED_FROM:
        return Tier(tier - 1), f"moved up to “{Tier(tier - 1).word}”: {told}"
    if tier in (Tier.BLOCKS, Tier.CHECK) and wilson_lower_bound(decided - approved, decided) >= LIKE_APPROVED_FROM:
        return Tier(tier + 1), f"moved down to “{Tier(tier + 1).word}”: {told}"
    return tier, ""
