"""The stack of cards: one card is shown; a key decides it, and the next one stands there in the same frame.

The stack only shows and asks. It posts `Decided` with the card that was on screen when the key was pressed; the screen
calls the engine, and `bring_back`s the card if the engine refuses.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.keys import bindings
from clawpy_console.screens.mission.card import CardView
from engine.model import Card, DismissReason, Tier

GUARD_S = 0.15
"""Seconds for which keys are ignored after another card came up by itself."""

REASON_S = 4.0
"""Seconds after a dismissal in which one more key may say why. Any other key ends them and does what it always does."""

ANIMATION_S = 0.18
"""Seconds that a card takes to leave."""


DIRECTIONS = {"approve": Offset(1, 0), "dismiss": Offset(-1, 0), "snooze": Offset(0, -1)}
"""Where a card goes that was decided."""


class CardStack(Widget, can_focus=True):
    """The pending cards in rank order; one of them is in front, the first to begin with."""

    BINDINGS = bindings("stack")
    DEFAULT_CSS = """
    CardStack { layers: under over; height: 1fr; overflow: hidden;
        & > #front { layer: under; }
        & > #leaving { layer: over; display: none; width: 100%; height: 100%; }
        & > #empty { layer: under; height: 1fr; content-align: center middle; text-align: center; color: $grey;
            border: round $line; }
        &:focus > #front, &:focus > #empty { border: round $accent; }
        & > #front.-broken, &:focus > #front.-broken { border: heavy $wrong; }
        &:focus > #front.-risky { border: round $wants; }
        &:focus > #front.-armed { border: heavy $wants; }
    }
    """

    @dataclass
    class Decided(Message):
        """`card` was decided: "approve", "dismiss" or "snooze"."""

        card: Card
        how: str

    @dataclass
    class Explained(Message):
        """A reason was given for a dismissal."""

        card_id: str
        reason: DismissReason

    class Turned(Message):
        """Another card is in front, or the numbers changed."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.clock = clock
        self.cards: tuple[Card, ...] = ()
        """The cards that are pending, as the engine ranks them."""
        self._at = 0  # the one in front
        self._dismissed: tuple[str, float] = ("", 0.0)  # the last card that was dismissed here, and when
        self._changed_at = float("-inf")
        self._armed = ""

    def compose(self) -> ComposeResult:
        yield CardView(id="front")
        yield Static("", id="empty", markup=False)
        yield CardView(id="leaving")

    @property
    def front(self) -> Card | None:
        """The card on screen."""
        return self.cards[self._at] if self.cards else None

    @property
    def asks_why(self) -> str:
        """The id of the card that was just dismissed, while a key may still say why; "" for none."""
        card_id, at = self._dismissed
        return card_id if card_id and self.clock() - at < REASON_S else ""

    @property
    def armed(self) -> bool:
        """True while the front card's risk was pointed out and the second key is awaited."""
        return self.front is not None and self._armed == self.front.id

    def show(self, cards: Sequence[Card], *, empty: str) -> None:
        """What is pending. The card in front stays in front while it is among them."""
        before = self.front
        at = next((at for at, card in enumerate(cards) if before is not None and card.id == before.id), self._at)
        self._replace(tuple(cards), at, own=False)
        self.query_one("#empty", Static).update(empty, layout=False)

    def bring_back(self, card: Card, note: str) -> None:
        """Put `card` in front again: its decision was undone, or the engine refused and `note` says why."""
        if self._dismissed[0] == card.id:
            self._dismissed = ("", 0.0)
        restored = dataclasses.replace(card, note=note or card.note)
        others = [other for other in self.cards if other.id != card.id]
        at = min(self._at, len(others))
        self._replace((*others[:at], restored, *others[at:]), at, own=True)

    def _replace(self, cards: tuple[Card, ...], at: int, *, own: bool) -> None:
        before = self.front
        self.cards = cards
        self._at = at if at < len(cards) else 0
        after = self.front
        if (before.id if before else "") != (after.id if after else ""):
            self._armed = ""
            if not own and before is not None:
                self._changed_at = self.clock()
        if (before is None) != (after is None):
            self.refresh_bindings()
        self._draw()
        self.post_message(self.Turned())

    def _draw(self) -> None:
        front = self.query_one("#front", CardView)
        front.card = self.front
        front.display = self.front is not None
        self.query_one("#empty").display = self.front is None
        front.set_class(self.front is not None and self.front.tier is Tier.BROKEN, "-broken")
        front.set_class(self.front is not None and bool(words.approval_risk(self.front)), "-risky")
        front.set_class(self.armed, "-armed")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing now are not offered."""
        if action in ("approve", "decide", "turn"):
            return len(self.cards) > (action == "turn")
        if action == "why":
            return bool(self.asks_why)
        return super().check_action(action, parameters)

    def _steady(self) -> bool:
        return self.clock() - self._changed_at >= GUARD_S

    def action_decide(self, how: str) -> None:
        """Approve, dismiss or snooze the card in front."""
        card = self.front
        if card is None or not self._steady():
            return
        self._fly(card, DIRECTIONS[how])
        self._dismissed = (card.id, self.clock()) if how == "dismiss" else ("", 0.0)
        self._replace(tuple(other for other in self.cards if other.id != card.id), self._at, own=True)
        self.post_message(self.Decided(card, how))
        if how == "dismiss":
            self.set_timer(REASON_S, self._asked_why)
        self.refresh_bindings()

    def _asked_why(self) -> None:
        if self.is_attached and not self.asks_why:
            self._ask_no_more()

    def _ask_no_more(self) -> None:
        self._dismissed = ("", 0.0)
        self.refresh_bindings()
        self.post_message(self.Turned())

    def _fly(self, card: Card, direction: Offset) -> None:
        """Let a picture of `card` leave in `direction`; the next card already stands below it."""
        if self.app.animation_level == "none":
            return
        leaving = self.query_one("#leaving", CardView)
        leaving.card = card
        leaving.offset = Offset(0, 0)
        leaving.display = True
        leaving.animate(
            "offset",
            Offset(direction.x * self.size.width, direction.y * self.size.height),
            duration=ANIMATION_S,
            easing="out_cubic",
            on_complete=lambda: setattr(leaving, "display", False),
        )

    def action_approve(self) -> None:
        card = self.front
        if card is not None and self._steady() and words.approval_risk(card):
            self._armed = card.id
            self._draw()
            self.post_message(self.Turned())
        else:
            self.action_decide("approve")

    def action_insist(self) -> None:
        if self.armed:
            self.action_decide("approve")

    def action_turn(self, by: int) -> None:
        """The next card, or with -1 the one before; from the last to the first."""
        self._replace(self.cards, (self._at + by) % len(self.cards), own=True)

    def turn_to(self, card_id: str) -> None:
        """The card `card_id`, if it is pending."""
        at = next((at for at, card in enumerate(self.cards) if card.id == card_id), self._at)
        self._replace(self.cards, at, own=True)

    def action_why(self, reason: str) -> None:
        if card_id := self.asks_why:
            self.post_message(self.Explained(card_id, DismissReason(reason)))
            self._ask_no_more()

    def on_key(self, event: events.Key) -> None:
        """Any key that gives no reason ends the time for one: a digit is a screen again."""
        active = self.screen.active_bindings.get(event.key)
        if self.asks_why and not (active and active.node is self and active.binding.action.startswith("why(")):
            self._ask_no_more()

    def on_focus(self) -> None:
        self.post_message(self.Turned())

    def on_blur(self) -> None:
        self._armed = ""
        self._draw()
        self._ask_no_more()
