"""The stack of cards: one card is drawn, a key decides it, and the next card is drawn in the same frame.

The stack calls no engine. It hands the decision to the screen, with the card that was in sight at the key. The screen
calls the engine, and `restore`s the card if the engine refuses.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.geometry import Offset
from textual.widget import Widget

from clawpy_console.card_controller import CardDecision
from clawpy_console.fields.cards import explain_cannot_run
from clawpy_console.keys import format_key, make_bindings
from clawpy_console.screens.card_view import CardView, describe_way_out
from clawpy_console.widgets.texts import PlainText
from engine.frozen import frozen
from engine.model import Card, DismissReason, Source, Tier

if TYPE_CHECKING:
    from clawpy_console.console import Console


CARD_GUARD_S = 0.4
"""Seconds for which keys are ignored after the engine replaced the card in front."""

EXIT_DURATION_S = 0.18
"""Seconds that a decided card takes to leave the screen."""

EXIT_DIRECTIONS = {
    CardDecision.APPROVE: Offset(1, 0), CardDecision.DISMISS: Offset(-1, 0), CardDecision.SNOOZE: Offset(0, -1),
}  # fmt: skip
"""The direction in which a decided card leaves, by the decision."""


REASON_WINDOW_S = 4.0
"""Seconds after a dismissal in which a letter may give the reason. Any other key ends them, and works as usual."""


@frozen
class ReasonQuestion:
    """The question why a card was dismissed."""

    card: Card
    asked_at: float

    def is_open(self, now: float) -> bool:
        """Whether a key may still give the reason."""
        return now - self.asked_at < REASON_WINDOW_S

    def takes(self, reason: str) -> bool:
        """Whether this may be the reason. A prompt of your own mutes nothing, so it takes no "never"."""
        return not (self.card.source is Source.OPERATOR and reason.startswith("never"))


class CardStack(Widget, can_focus=True):
    """The pending cards in rank order; one of them is in front.

    Until the operator presses a key, that is the first. A card that follows from a result comes in front unless the
    operator chose the one in front, opened its details or saw its risk.
    """

    BINDINGS = make_bindings("stack")
    DEFAULT_CSS = """
    CardStack { layers: under over; height: 1fr; overflow: hidden;
        & > #front { layer: under; }
        & > #leaving { layer: over; display: none; width: 100%; height: 100%; }
        & > #empty { layer: under; height: 1fr; content-align: center middle; text-align: center; color: $grey;
            border: round $line; }
        &:focus > #front, &:focus > #empty { border: round $accent; }
        & > #front.-at-risk, &:focus > #front.-at-risk { border: heavy $wrong; }
        &:focus > #front.-risky { border: round $wants; }
        &:focus > #front.-risk-shown { border: heavy $wants; }
    }
    """

    app: Console
    clock = staticmethod(time.monotonic)

    def __init__(
        self,
        on_change: Callable[[], object],
        on_decision: Callable[[Card, CardDecision], object],
        on_reason: Callable[[str, DismissReason], object],
    ) -> None:
        """The functions are called at once, so that what they draw is in the same frame as the card.

        `on_change` is called when the operator put another card in front, or the stack asks something else;
        `on_decision` with a card and its decision; `on_reason` with the id of a dismissed card and the reason.
        """
        super().__init__(id="stack")
        self._on_change = on_change
        self._on_decision = on_decision
        self._on_reason = on_reason
        self.cards: tuple[Card, ...] = ()
        """The pending cards, as the engine ranks them."""
        self.chosen_id = ""
        """The card that the operator chose, or read more about, "" for none. It stays in front while it is pending."""
        self._has_pressed_key = False
        self._known_ids: frozenset[str] | None = None  # the pending cards before, also hidden ones; None at the start
        self._front_index = 0
        self._reason_question: ReasonQuestion | None = None  # about the last card that was dismissed here
        self._changed_at = float("-inf")  # when the engine replaced the card in front
        self._shown_risk_id = ""  # the card whose risk was shown

    def compose(self) -> ComposeResult:
        yield CardView(id="front")
        yield PlainText("", id="empty")
        yield CardView(id="leaving")

    @property
    def front(self) -> Card | None:
        """The card on screen, None when there are no cards."""
        return self.cards[self._front_index] if self.cards else None

    @property
    def reason_question(self) -> ReasonQuestion | None:
        """The question that a key may answer now, None for none."""
        question = self._reason_question
        return question if question is not None and question.is_open(self.clock()) else None

    @property
    def is_risk_shown(self) -> bool:
        """True once the risk of the card in front was shown: `action_insist` approves it."""
        return self.front is not None and self._shown_risk_id == self.front.id

    def show(self, cards: Sequence[Card], *, empty: str, pending: Iterable[Card] | None) -> None:
        """Show `cards`, or the text `empty`. The card in front stays in front while it is among them, unless it was not
        chosen and another one comes before it. If it is hidden, the first comes in front. `pending` are all pending
        cards, also those of hidden workspaces; None until the engine listed them."""
        self._replace(tuple(cards), self._find_front_index(cards, pending or ()), by_key=False)
        self._known_ids = None if pending is None else frozenset(card.id for card in pending)
        text = self.query_one("#empty", PlainText)
        if text.content != empty:
            text.update(empty, layout=False)

    def _find_front_index(self, cards: Sequence[Card], pending: Iterable[Card]) -> int:
        """The index of the one of `cards` that the engine's news leave or bring in front: a new follow-up unless the
        operator chose a card; the first before any key, and when the one in front is hidden; else the same as before.
        """
        has_choice = any(card.id == self.chosen_id for card in cards)
        if not has_choice and (new_follow_up := self._find_new_follow_up(cards)) is not None:
            return new_follow_up
        if self.front is None or not (has_choice or self._has_pressed_key):
            return 0
        is_hidden = self.front.id in {card.id for card in pending} - {card.id for card in cards}
        return 0 if is_hidden else self._find_index(self.front.id, cards)

    def _find_new_follow_up(self, cards: Sequence[Card]) -> int | None:
        """The index of the first card that follows from a result and was not pending before."""
        if self._known_ids is None:
            return None
        is_new = (card.source is Source.FOLLOW_UP and card.id not in self._known_ids for card in cards)
        return next((index for index, new in enumerate(is_new) if new), None)

    def _find_index(self, card_id: str, cards: Sequence[Card]) -> int:
        """The index of a card, that of the front where the card is not among `cards`."""
        return next((index for index, card in enumerate(cards) if card.id == card_id), self._front_index)

    def restore(self, card: Card, note: str) -> None:
        """Put `card` in front again: its decision was undone, or the engine refused it, with `note` as the reason."""
        if self._reason_question is not None and self._reason_question.card.id == card.id:
            self._reason_question = None
        restored = dataclasses.replace(card, note=note or card.note)
        self.chosen_id = card.id
        others = [other for other in self.cards if other.id != card.id]
        index = min(self._front_index, len(others))
        self._replace((*others[:index], restored, *others[index:]), index, by_key=True)

    def _replace(self, cards: tuple[Card, ...], index: int, *, by_key: bool) -> None:
        """Show `cards` with the one at `index` in front. `by_key`: the operator did that, not the engine."""
        before = self.front
        self.cards = cards
        self._front_index = index if index < len(cards) else 0
        after = self.front
        if (before.id if before else "") != (after.id if after else ""):
            self._shown_risk_id = ""
            if not by_key and before is not None:
                self._changed_at = self.clock()
        if (before is None) != (after is None):
            self.refresh_bindings()
        self._draw()
        if by_key:
            self._on_change()

    def _draw(self) -> None:
        """Draw the card in front, or the text of the empty stack."""
        card = self.front
        view = self.query_one("#front", CardView)
        view.card = card
        view.display = card is not None
        self.query_one("#empty").display = card is None
        view.set_class(card is not None and card.tier is Tier.AT_RISK, "-at-risk")
        view.set_class(card is not None and bool(card.approval_risk), "-risky")
        view.set_class(self.is_risk_shown, "-risk-shown")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing now are not offered."""
        if action in ("approve", "decide", "turn", "turn_to"):
            min_cards = 2 if action in ("turn", "turn_to") else 1
            return len(self.cards) >= min_cards
        if action == "give_reason":
            return self.reason_question is not None and self.reason_question.takes(str(parameters[0]))
        return super().check_action(action, parameters)

    def _can_decide(self) -> bool:
        return self.clock() - self._changed_at >= CARD_GUARD_S

    def action_decide(self, name: str) -> None:
        """Approve, dismiss or snooze the card in front; `name` is that of a `CardDecision`."""
        card = self.front
        decision = CardDecision(name)
        if card is None or not self._can_decide():
            return
        self._fly_out(card, EXIT_DIRECTIONS[decision])
        is_dismissed = decision is CardDecision.DISMISS
        self._reason_question = ReasonQuestion(card, self.clock()) if is_dismissed else None
        self._replace(tuple(other for other in self.cards if other.id != card.id), self._front_index, by_key=True)
        self._on_decision(card, decision)
        if is_dismissed:
            self.set_timer(REASON_WINDOW_S, self._on_reason_timeout)
        self.refresh_bindings()

    def _on_reason_timeout(self) -> None:
        if self.is_attached and self.reason_question is None:
            self._end_reason_question()

    def _end_reason_question(self) -> None:
        self._reason_question = None
        self.refresh_bindings()
        self._on_change()

    def _fly_out(self, card: Card, direction: Offset) -> None:
        """Let a picture of `card` leave in `direction`, above the next card."""
        if self.app.animation_level == "none":
            return
        leaving = self.query_one("#leaving", CardView)

        def hide() -> None:
            leaving.display = False

        leaving.card = card
        leaving.offset = Offset(0, 0)
        leaving.display = True
        leaving.animate(
            "offset",
            Offset(direction.x * self.size.width, direction.y * self.size.height),
            duration=EXIT_DURATION_S,
            easing="out_cubic",
            on_complete=hide,
        )

    def action_approve(self) -> None:
        """Approve the card in front. If that is risky, show the risk first."""
        card = self.front
        if card is None or not self._can_decide():
            return
        if card.approval_risk:
            self._shown_risk_id = self.chosen_id = card.id
            self._draw()
            self._on_change()
        else:
            self.action_decide(CardDecision.APPROVE)

    def action_insist(self) -> None:
        """Approve the card in front, once its risk was shown; else say what its approval needs."""
        if self.is_risk_shown:
            self.action_decide(CardDecision.APPROVE)
        elif self.front is not None:
            self.app.show_toast(self._explain_approval(self.front))

    def _explain_approval(self, card: Card) -> str:
        """What approving `card` needs or does."""
        approve = format_key("stack.approve", self.app.keymap)
        if blocking_verdict := card.blocking_verdict:
            return f"The rail “{blocking_verdict.rail}” blocks it. {describe_way_out(card, self.app.keymap)}"
        if not card.can_run:
            return explain_cannot_run(card.assignment.flow)
        if card.approval_risk:
            return f"{approve} shows the risk first."
        return f"No risk here: {approve} approves it."

    def action_turn(self, by: int) -> None:
        """Show the next card, or with -1 the previous one; the first follows the last."""
        self.action_turn_to(self._front_index + by)

    def action_turn_to(self, index: int) -> None:
        """Show the card with this index; -1 is the last one, and the first follows the last."""
        if self.cards:
            self.select(self.cards[index % len(self.cards)].id)

    def select(self, card_id: str) -> None:
        """Show the card `card_id`, if it is pending."""
        if any(card.id == card_id for card in self.cards):
            self.chosen_id = card_id
            self._replace(self.cards, self._find_index(card_id, self.cards), by_key=True)

    def action_give_reason(self, reason: str) -> None:
        """Give the reason for the dismissal; it is the value of a `DismissReason`."""
        if question := self.reason_question:
            self._on_reason(question.card.id, DismissReason(reason))
            self._end_reason_question()

    def on_key(self, event: events.Key) -> None:
        """Keep the card in front from now on; end the question for a reason at any key that gives none."""
        self._has_pressed_key = True
        if self.reason_question is not None:
            active = self.screen.active_bindings.get(event.key)
            if active is None or active.node is not self or not active.binding.action.startswith("give_reason("):
                self._end_reason_question()

    def on_focus(self) -> None:
        self._on_change()

    def on_blur(self) -> None:
        self._shown_risk_id = ""
        self._draw()
        self._end_reason_question()
