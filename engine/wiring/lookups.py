"""Finds cards, corrections and sessions for the other modules of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from engine.model import Card, Refusal
from engine.model.learnings import Correction

if TYPE_CHECKING:
    from engine.services import Services

T = TypeVar("T")

REACH_DECISIONS = 200
"""Number of the newest decisions that are searched for cards on the same channel."""


def correction(services: Services, card_id: str) -> Correction | None:
    """The operator's edit of the prompt of a card before approving it; None when nothing was edited or there is no
    card."""
    about = find_card(services, card_id)
    correction_texts = None if about is None else services.cards.correction(card_id)
    if about is None or correction_texts is None:
        return None
    channel = about.assignment.channel
    return Correction(
        *correction_texts,
        about.agent,
        about.kind,
        channel,
        about.session_id or "",
        about.estimate,
        channel_reach(services, channel),
    )


def channel_reach(services: Services, channel: str) -> int:
    """The number of the latest decided cards on a channel, at least 1: how much work a rule of it concerns."""
    return max(1, sum(decision.channel == channel for decision in services.decisions.load_newest(REACH_DECISIONS)))


def find_card(services: Services, card_id: str) -> Card | None:
    """A card, None for work without one."""
    return find_or_none(services.cards.get, card_id)


def find_or_none(get: Callable[[str], T], id: str) -> T | None:
    """The result of `get`, None when there is nothing with this id any more."""
    try:
        return get(id)
    except Refusal:
        return None
