"""What reaches the operator where he is: notifications, and the line of a status bar (SPEC 10.2, 10.3)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.api.complication import Complication
from engine.api.notify.notifications import Notifications
from engine.model import Card

if TYPE_CHECKING:
    from engine.engine import Engine


def build(core: Engine) -> None:
    """The notification router, and who keeps the status bar's file."""
    core.notify = Notifications(core)
    core.complication = Complication(
        core.home.complication,
        bus=core.bus,
        cards=partial(_stack, core),
        holds=core.safety.holds,
    )


def _stack(core: Engine) -> list[Card]:
    """The stack from the top, with the cards that are snoozed now: the status bar knows by itself when they wake."""
    now = core.clock.now()
    waiting = {card.id for card in core.cards.pending()}
    return [
        card
        for card in core.cards.pending(include_snoozed=True)
        if card.id in waiting or (card.snoozed_until is not None and card.snoozed_until > now)
    ]
