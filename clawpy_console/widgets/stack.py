"""The stack of cards: one card in front, swiped away by a key, the next one standing there in the same frame.

The stack only shows and asks. It posts `Decided` with the id of the card that was on screen when the key went down;
who gets the message calls the engine, and `bring_back`s the card if the engine refuses.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from clawpy_console import words
from clawpy_console.actions import bindings
from clawpy_console.widgets.card import CardView
from engine.values import Card

STEADY = 0.15
"""Seconds for which keys are ignored after the card changed under the operator's hands."""

FLIGHT = 0.18
"""Seconds that a card takes to leave."""


class CardStack(Widget, can_focus=True):
    """Cards in rank order, the first in front."""

    BINDINGS = bindings("stack")
    DEFAULT_CSS = """
    CardStack { layers: under over; height: 1fr; overflow: hidden;
        & > #front { layer: under; }
        & > #leaving { layer: over; display: none; width: 100%; height: 100%; }
        & > #empty { layer: under; height: 1fr; content-align: center middle; text-align: center; color: $grey;
            border: round $line; }
        &:focus > #front, &:focus > #empty { border: round $accent; }
        &:focus > #front.-risky { border: round $wants; }
        &:focus > #front.-armed { border: heavy $wants; }
    }
    """

    @dataclass
    class Decided(Message):
        """The operator decided the card `card`: "approve", "dismiss" or "snooze"."""

        card: Card
        how: str

    @dataclass
    class Wanted(Message):
        """The operator wants something else: "details", "undo", "own", "predict", "filter"; `card` is in front."""

        what: str
        card: Card | None

    class Turned(Message):
        """Another card is in front, or the numbers changed."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, id: str | None = None) -> None:
        super().__init__(id=id)
        self.clock = clock
        self._cards: tuple[Card, ...] = ()
        self._passed: set[str] = set()  # decided in this sitting: what "3 of 5" counts
        self._changed_at = float("-inf")
        self._armed = ""
        self._empty = Content("")
        self._several = False

    def compose(self) -> ComposeResult:
        yield CardView(id="front")
        yield Static("", id="empty", markup=False)
        yield CardView(id="leaving")

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards that wait, the front one first."""
        return self._cards

    @property
    def front(self) -> Card | None:
        """The card on screen."""
        return self._cards[0] if self._cards else None

    @property
    def place(self) -> tuple[int, int]:
        """Where one is in this sitting: the third of five, when two of five were decided and three are left."""
        return len(self._passed) + 1, len(self._passed) + len(self._cards)

    @property
    def armed(self) -> bool:
        """True while the front card's risk was pointed out and the second key is awaited."""
        return self.front is not None and self._armed == self.front.id

    def show(self, cards: Sequence[Card], *, empty: str, several: bool = False) -> None:
        """What is pending. The card in front stays in front while it is among them. `several`: there is more than one
        workspace to choose from."""
        if several != self._several:
            self._several = several
            self.refresh_bindings()
        left = list(cards)
        self._passed -= {card.id for card in left}  # taken back
        before = self.front
        if before is not None and before.id in {card.id for card in left}:
            left.sort(key=lambda card: card.id != before.id)
        self._replace(tuple(left), own=False)
        said = Content(empty)
        if said != self._empty:
            self._empty = said
            self.query_one("#empty", Static).update(said, layout=False)

    def bring_back(self, card: Card, note: str) -> None:
        """Put `card` in front again: it was taken back, or the engine refused and `note` says why."""
        self._passed.discard(card.id)
        again = dataclasses.replace(card, note=note or card.note)
        self._replace((again, *(one for one in self._cards if one.id != card.id)), own=True)

    def leave(self, card: Card) -> None:
        """`card` was approved in its details, or could not be taken back: it leaves here too."""
        if card.id in {one.id for one in self._cards}:
            self._passed.add(card.id)
            if self.front is not None and self.front.id == card.id:
                self._fly(card, Offset(1, 0))
            self._replace(tuple(one for one in self._cards if one.id != card.id), own=True)

    def _replace(self, cards: tuple[Card, ...], *, own: bool) -> None:
        before = self.front
        self._cards = cards
        after = self.front
        if after is None:
            self._passed.clear()
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
        front.set_class(self.front is not None and bool(words.risk(self.front)), "-risky")
        front.set_class(self.armed, "-armed")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing now are not offered."""
        if action in ("approve", "dismiss", "snooze", "details"):
            return self.front is not None
        if action == "filter":
            return self._several
        return super().check_action(action, parameters)

    def _steady(self) -> bool:
        return self.clock() - self._changed_at >= STEADY

    def _decide(self, how: str, direction: Offset) -> None:
        card = self.front
        if card is None or not self._steady():
            return
        self._passed.add(card.id)
        self._fly(card, direction)
        self._replace(self._cards[1:], own=True)
        self.post_message(self.Decided(card, how))

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
            duration=FLIGHT,
            easing="out_cubic",
            on_complete=lambda: setattr(leaving, "display", False),
        )

    def action_approve(self) -> None:
        card = self.front
        if card is None or not self._steady():
            return
        if words.risk(card):
            self._armed = card.id
            self._draw()
            self.post_message(self.Turned())
            return
        self._decide("approve", Offset(1, 0))

    def action_insist(self) -> None:
        if self.armed:
            self._decide("approve", Offset(1, 0))

    def action_dismiss(self) -> None:
        self._decide("dismiss", Offset(-1, 0))

    def action_snooze(self) -> None:
        self._decide("snooze", Offset(0, -1))

    def action_details(self) -> None:
        if self.front is not None:
            self.post_message(self.Wanted("details", self.front))

    def action_undo(self) -> None:
        self.post_message(self.Wanted("undo", self.front))

    def action_own_prompt(self) -> None:
        self.post_message(self.Wanted("own", self.front))

    def action_predict(self) -> None:
        self.post_message(self.Wanted("predict", self.front))

    def action_filter(self) -> None:
        self.post_message(self.Wanted("filter", self.front))

    def on_blur(self) -> None:
        self._armed = ""
        self._draw()
        self.post_message(self.Turned())
