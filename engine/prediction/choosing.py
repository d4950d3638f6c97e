"""Which proposals get the seats that are free (SPEC 2.5, 2.9). Pure but for the seeded draw.

While nothing is learnt yet, what the signals say. From phase 1 on the confidence speaks twice as loudly, and what is
below its lowest band is left out, but for a small share: in one cycle of `EXPLORED_IN` one card is shown that would not
have been, so that what the operator came to like since is found again. It says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from engine.prediction.confidence import band_of
from engine.prediction.intake import Draft
from engine.values import Band, Randomness

MOST_ALIKE = 4
"""So many cards of one kind are pending in a workspace at most: never five of the five."""

SAMENESS = 0.15
"""What a draft loses for each of its kind that comes before it."""

LOUDER = 2.0
"""What a confidence in [0, 1] counts for beside the sum of the signals, also in [0, 1]."""

EXPLORED_IN = 10
"""In one cycle of so many a card is shown to learn something."""


def in_turn(drafts: Sequence[Draft], seats: int, *, learning: bool, randomness: Randomness) -> list[Draft]:
    """The drafts that may be shown, the first for the first seat. `learning`: phase 1 or later."""
    shown = [draft for draft in drafts if band_of(draft.parts.total) is not Band.DISCARDED]
    if not learning:
        return sorted(shown, key=lambda draft: draft.rank, reverse=True)
    shown = _varied(shown)
    left = [draft for draft in drafts if draft not in shown[:seats]]
    if left and randomness.uniform() * EXPLORED_IN < 1:
        kinds = {draft.proposal.kind: 1.0 for draft in left}
        kind = randomness.pick(dict(sorted(kinds.items())))
        drawn = max((draft for draft in left if draft.proposal.kind == kind), key=_worth)
        words = (*drawn.parts.words, f"shown to learn what you make of it, as in one of {EXPLORED_IN} rounds")
        explored = replace(drawn, parts=replace(drawn.parts, words=words))
        return [explored, *(draft for draft in shown if draft is not drawn)]
    return shown


def _varied(drafts: Sequence[Draft]) -> list[Draft]:
    """The worthiest first, those of a kind that came already somewhat later."""
    order, before = [], Counter[str]()
    for draft in sorted(drafts, key=_worth, reverse=True):
        worth, urgency = _worth(draft)
        order.append((worth - SAMENESS * before[draft.proposal.kind], urgency, draft))
        before[draft.proposal.kind] += 1
    return [draft for _, _, draft in sorted(order, key=lambda one: one[:2], reverse=True)]


def _worth(draft: Draft) -> tuple[float, float]:
    signals, urgency = draft.rank
    return LOUDER * draft.parts.total + signals, urgency
