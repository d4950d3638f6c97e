"""The stack of cards: one card is drawn, a key decides it, and the next card is drawn in the same frame.

The stack calls no engine. It hands the decision to the screen, with the card that was in sight at the key. The screen
calls the engine, and `restore`s the card if the engine refuses.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Offset
from textual.reactive import reactive
from textual.widget import Widget

from clawpy_console import formats
from clawpy_console.card_controller import CardDecision
from clawpy_console.fields import work
from clawpy_console.formats import crop, fit_to_width, one_line, workspace_name
from clawpy_console.keys import bindings, format_key
from clawpy_console.widgets.texts import PlainText, limit_lines, wrap_text
from engine.model import NO_SANDBOX_WARNING, Band, Card, DismissReason, Signal, Source, Tier

if TYPE_CHECKING:
    from clawpy_console.console import Console


class CardView(Widget):
    """Draws one card, or nothing."""

    DEFAULT_CSS = """
    CardView { border: round $line; padding: 0 2; height: 1fr; background: $background; }
    """

    app: Console
    card: reactive[Card | None] = reactive(None)

    def render(self) -> Content:
        if self.card is None:
            return Content("")
        width, height = self.content_size
        has_evidence_pane = self.screen.has_class("-wide")
        way_out = describe_way_out(self.card, self.app.keymap)
        return Content("\n").join(
            make_card_lines(self.card, width, height, way_out, with_signals=not has_evidence_pane)
        )


CARD_GUARD_S = 0.4
"""Seconds for which keys are ignored after the engine replaced the card in front."""

REASON_S = 4.0
"""Seconds after a dismissal in which a letter may give the reason. Any other key ends them, and works as usual."""

ANIMATION_S = 0.18
"""Seconds that a decided card takes to leave the screen."""

DIRECTIONS = {
    CardDecision.APPROVE: Offset(1, 0), CardDecision.DISMISS: Offset(-1, 0), CardDecision.SNOOZE: Offset(0, -1),
}  # fmt: skip
"""The direction in which a decided card leaves, by the decision."""


class CardStack(Widget, can_focus=True):
    """The pending cards in rank order; one of them is in front.

    Until the operator presses a key, that is the first. A card that follows from a result comes in front unless the
    operator chose the one in front, opened its details or saw its risk.
    """

    BINDINGS = bindings("stack")
    DEFAULT_CSS = """
    CardStack { layers: under over; height: 1fr; overflow: hidden;
        & > #front { layer: under; }
        & > #leaving { layer: over; display: none; width: 100%; height: 100%; }
        & > #empty { layer: under; height: 1fr; content-align: center middle; text-align: center; color: $grey;
            border: round $line; }
        &:focus > #front, &:focus > #empty { border: round $accent; }
        & > #front.-at-risk, &:focus > #front.-at-risk { border: heavy $wrong; }
        &:focus > #front.-risky { border: round $wants; }
        &:focus > #front.-armed { border: heavy $wants; }
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
        self._on_change, self._on_decision, self._on_reason = on_change, on_decision, on_reason
        self.cards: tuple[Card, ...] = ()
        """The pending cards, as the engine ranks them."""
        self.chosen_id = ""
        """The card that the operator chose, or read more about, "" for none. It stays in front while it is pending."""
        self._has_pressed_key = False
        self._known_ids: frozenset[str] | None = None  # the pending cards before, also hidden ones; None at the start
        self._front_index = 0
        self._dismissed_id = ""  # the last card that was dismissed here, until its reason is given or not any more
        self._dismissed_at = 0.0
        self._has_dismissed_own = False  # whether that card was a prompt of the operator
        self._changed_at = float("-inf")  # when the engine replaced the card in front
        self._armed_id = ""  # the card whose risk was shown

    def compose(self) -> ComposeResult:
        yield CardView(id="front")
        yield PlainText("", id="empty")
        yield CardView(id="leaving")

    @property
    def front(self) -> Card | None:
        """The card on screen, None when there are no cards."""
        return self.cards[self._front_index] if self.cards else None

    @property
    def reason_card_id(self) -> str:
        """The id of the card that was just dismissed, while a key may give the reason; "" for none."""
        return self._dismissed_id if self.clock() - self._dismissed_at < REASON_S else ""

    def takes_reason(self, reason: str) -> bool:
        """Whether a key may give this reason now. A prompt of your own mutes nothing, so it takes no "never"."""
        return bool(self.reason_card_id) and not (self._has_dismissed_own and reason.startswith("never"))

    @property
    def armed(self) -> bool:
        """True once the risk of the card in front was shown: `action_insist` approves it."""
        return self.front is not None and self._armed_id == self.front.id

    def show(self, cards: Sequence[Card], *, empty: str, pending: Iterable[Card] | None) -> None:
        """Show `cards`, or the text `empty`. The card in front stays in front while it is among them, unless it was not
        chosen and another one comes before it. If it is hidden, the first comes in front. `pending` are all pending
        cards, also those of hidden workspaces; None until the engine listed them."""
        self._replace(tuple(cards), self._index_in_front(cards, pending or ()), by_key=False)
        self._known_ids = None if pending is None else frozenset(card.id for card in pending)
        text = self.query_one("#empty", PlainText)
        if text.content != empty:
            text.update(empty, layout=False)

    def _index_in_front(self, cards: Sequence[Card], pending: Iterable[Card]) -> int:
        """The index of the one of `cards` that the engine's news leave or bring in front."""
        if all(card.id != self.chosen_id for card in cards):
            for index, card in enumerate(cards):
                is_new = self._known_ids is not None and card.id not in self._known_ids
                if is_new and card.source is Source.FOLLOW_UP:
                    return index
            if not self._has_pressed_key:
                return 0
        if self.front is None:
            return 0
        is_hidden = self.front.id in {card.id for card in pending} - {card.id for card in cards}
        return 0 if is_hidden else self._index_of(self.front.id, cards)

    def _index_of(self, card_id: str, cards: Sequence[Card]) -> int:
        """The index of a card, that of the front where the card is not among `cards`."""
        return next((index for index, card in enumerate(cards) if card.id == card_id), self._front_index)

    def restore(self, card: Card, note: str) -> None:
        """Put `card` in front again: its decision was undone, or the engine refused it, with `note` as the reason."""
        if self._dismissed_id == card.id:
            self._dismissed_id = ""
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
            self._armed_id = ""
            if not by_key and before is not None:
                self._changed_at = self.clock()
        if (before is None) != (after is None):
            self.refresh_bindings()
        self._draw()
        if by_key:
            self._on_change()

    def _draw(self) -> None:
        """Draw the card in front, or the text of the empty stack."""
        card, view = self.front, self.query_one("#front", CardView)
        view.card = card
        view.display = card is not None
        self.query_one("#empty").display = card is None
        view.set_class(card is not None and card.tier is Tier.AT_RISK, "-at-risk")
        view.set_class(card is not None and bool(card.approval_risk), "-risky")
        view.set_class(self.armed, "-armed")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing now are not offered."""
        if action in ("approve", "decide", "turn", "turn_to"):
            at_least = 2 if action in ("turn", "turn_to") else 1
            return len(self.cards) >= at_least
        if action == "why":
            return self.takes_reason(str(parameters[0]))
        return super().check_action(action, parameters)

    def _can_decide(self) -> bool:
        return self.clock() - self._changed_at >= CARD_GUARD_S

    def action_decide(self, name: str) -> None:
        """Approve, dismiss or snooze the card in front; `name` is that of a `CardDecision`."""
        card, decision = self.front, CardDecision(name)
        if card is None or not self._can_decide():
            return
        self._fly_out(card, DIRECTIONS[decision])
        self._dismissed_id = card.id if decision is CardDecision.DISMISS else ""
        self._dismissed_at = self.clock()
        self._has_dismissed_own = card.source is Source.OPERATOR
        self._replace(tuple(other for other in self.cards if other.id != card.id), self._front_index, by_key=True)
        self._on_decision(card, decision)
        if decision is CardDecision.DISMISS:
            self.set_timer(REASON_S, self._on_reason_timeout)
        self.refresh_bindings()

    def _on_reason_timeout(self) -> None:
        if self.is_attached and not self.reason_card_id:
            self._end_reason_question()

    def _end_reason_question(self) -> None:
        self._dismissed_id = ""
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
            duration=ANIMATION_S,
            easing="out_cubic",
            on_complete=hide,
        )

    def action_approve(self) -> None:
        """Approve the card in front. If that is risky, show the risk first."""
        card = self.front
        if card is None or not self._can_decide():
            return
        if card.approval_risk:
            self._armed_id = self.chosen_id = card.id
            self._draw()
            self._on_change()
        else:
            self.action_decide(CardDecision.APPROVE)

    def action_insist(self) -> None:
        """Approve the card in front, once its risk was shown; else say what its approval needs."""
        if self.armed:
            self.action_decide(CardDecision.APPROVE)
        elif self.front is not None:
            self.app.show_toast(self._explain_approval(self.front))

    def _explain_approval(self, card: Card) -> str:
        """What approving `card` needs or does."""
        approve = format_key("stack.approve", self.app.keymap)
        if blocking_verdict := card.blocking_verdict:
            return f"The rail “{blocking_verdict.rail}” blocks it. {describe_way_out(card, self.app.keymap)}"
        if not card.can_run:
            return work.explain_cannot_run(card.assignment.flow)
        if card.approval_risk:
            return f"{approve} shows the risk first."
        return f"No risk here: {approve} approves it."

    def action_turn(self, by: int) -> None:
        """Show the next card, or with -1 the previous one; the first follows the last."""
        self.action_turn_to(self._front_index + by)

    def action_turn_to(self, index: int) -> None:
        """Show the card with this index; -1 is the last one, and the first follows the last."""
        index %= len(self.cards)
        self.chosen_id = self.cards[index].id
        self._replace(self.cards, index, by_key=True)

    def select(self, card_id: str) -> None:
        """Show the card `card_id`, if it is pending."""
        self.chosen_id = card_id
        self._replace(self.cards, self._index_of(card_id, self.cards), by_key=True)

    def action_why(self, reason: str) -> None:
        if card_id := self.reason_card_id:
            self._on_reason(card_id, DismissReason(reason))
            self._end_reason_question()

    def on_key(self, event: events.Key) -> None:
        """Keep the card in front from now on; end the question for a reason at any key that gives none."""
        self._has_pressed_key = True
        if self.reason_card_id:
            active = self.screen.active_bindings.get(event.key)
            if active is None or active.node is not self or not active.binding.action.startswith("why("):
                self._end_reason_question()

    def on_focus(self) -> None:
        self._on_change()

    def on_blur(self) -> None:
        self._armed_id = ""
        self._draw()
        self._end_reason_question()


def make_headline(card: Card, width: int) -> Content:
    """`AT RISK  shop · tests` at the left; at the right the badges, and the confidence once it is stated."""
    badges = []
    if card.has_stated_confidence:
        badges.append((f"{round(card.confidence * 100)}%", "bold $ink"))
        if card.parts is not None and card.parts.has_few_decisions:
            badges.append((" few decisions", "$grey"))
        if card.band in (Band.SUGGESTED, Band.ACT):
            badges.append(("  SUGGESTED", "bold $accent"))
        if card.has_novel_pair:
            badges.append(("  NEW", "bold $wants"))
    right = Content.assemble(*badges)
    label = Content.styled(f"{card.tier_word.upper()}  ", "bold $wrong" if card.tier is Tier.AT_RISK else "bold $ink")
    place = f"{workspace_name(card.assignment.workspace)} · {card.work}"
    place_width = max(1, width - label.cell_length - right.cell_length - 1)
    return Content.assemble(label, (fit_to_width(place, place_width), "$grey"), " ", right)


def describe_signal(signal: Signal) -> tuple[str, str]:
    """The name of a signal and its evidence."""
    name = "talk" if signal.name == "conversations" else signal.name
    return name, one_line(signal.error or "; ".join(signal.evidence)) or "nothing"


SIGNAL_BAR_CELLS = 8
"""Cells of the bar of a signal."""


def make_signal_line(signal: Signal) -> Content:
    """A signal as name, bar and evidence."""
    name, text = describe_signal(signal)
    filled = max(round(signal.relevance * SIGNAL_BAR_CELLS), 1 if signal.relevance > 0.02 else 0)
    bar = f"{'▇' * filled:<{SIGNAL_BAR_CELLS}} "
    return Content.assemble((f"{fit_to_width(name, 8)} ", "$faint"), (bar, "$accent"), (text, "$grey"))


def describe_work(card: Card) -> str:
    """The estimated cost of a card, what it changes, what runs it and what undoes it, where anything can run it."""
    assignment = card.assignment
    if not card.can_run:
        return work.explain_cannot_run(assignment.flow)
    parts = [f"est. {formats.money(card.estimate)}"] if card.estimate else []
    parts.append(work.describe_changes(card.changes, check_only=card.check_only, without_sandbox=card.without_sandbox))
    parts.append(f"runs: {assignment.flow or one_line(card.consent_text) or assignment.runner}")
    session_id = assignment.parameters.get("continues")
    if session_id and assignment.flow is None:
        parts.append(f"continues {session_id}")
    undo = one_line(card.undo_note)
    parts.append(undo if card.check_only else f"undo: {undo}")  # what reads says it itself
    return " · ".join(parts)


def describe_way_out(card: Card, keymap: Mapping[str, str]) -> str:
    """What the operator can do about the rail that would block `card`, with the keys; "" when none would."""
    blocking_verdict = card.blocking_verdict
    if blocking_verdict is None:
        return ""
    approve, safety, next_pane, allow_once = (
        format_key(action_id, keymap)
        for action_id in ("stack.approve", "app.safety", "panes.next", "safety.allow_once")
    )
    if not blocking_verdict.can_be_allowed_once:
        return f"{safety} shows the rails."
    if card.approval_risk:
        approve = f"{approve} {format_key('stack.insist', keymap)}"
    # The safety screen lists only work that was blocked, so the card has to be tried first.
    return f"To run it once: {approve}, then {safety} {next_pane} {allow_once} allows it, then {approve} again."


def find_caution(card: Card, way_out: str) -> tuple[str, str]:
    """A warning to read before approving, "" for none, and its style. `way_out` is that of `describe_way_out`."""
    if blocking_verdict := card.blocking_verdict:
        reason = one_line(blocking_verdict.reason)
        return f"✗ {blocking_verdict.rail} would block: {reason}. {way_out}", "$wrong"
    if card.rail_risk:  # that there is no sandbox stands under the headline
        return f"▲ risky: {card.approval_risk}", "$wants"
    if card.note:
        return f"▲ {one_line(card.note)}", "$wants"
    return "", ""


PartName = Literal["prompt", "reason", "signals", "caution", "facts"]
CardParts = dict[PartName, list[Content]]
"""The lines of each part of a card below its headline."""


class ShrinkStep(NamedTuple):
    """A step that makes a card smaller which is too high."""

    part: PartName
    min_lines: int
    """Number of lines of the part that stay at least."""


def make_card_lines(card: Card, width: int, height: int, way_out: str, *, with_signals: bool) -> list[Content]:
    """The card as exactly `height` lines of at most `width` cells. `way_out` is that of `describe_way_out`."""
    parts = _make_card_parts(card, width, way_out, with_signals=with_signals)
    _shrink(parts, width, height)
    sandbox_warning = crop(f"▲ {NO_SANDBOX_WARNING}", width) if card.without_sandbox else ""
    top = [make_headline(card, width), Content.styled(sandbox_warning, "bold $wants"), *parts["prompt"]]
    for lines in (parts["reason"], parts["signals"]):
        if lines:
            top += [Content(""), *lines]
    bottom = parts["caution"] + parts["facts"]
    blank = [Content("")] * (height - len(top) - len(bottom))
    return (top + blank + bottom)[:height]


def _make_card_parts(card: Card, width: int, way_out: str, *, with_signals: bool) -> CardParts:
    """The lines of each part of the card below its headline, as many as fit a high card."""
    signals = [signal for signal in card.signals if with_signals and signal.relevance > 0.02]
    signals.sort(key=lambda signal: -signal.share)
    return {
        "prompt": wrap_text(card.assignment.prompt, "bold $ink", width, 5),
        "reason": wrap_text(card.reasoning.partition("\n")[0], "$grey", width, 5),  # the details show the rest
        "signals": [make_signal_line(signal).truncate(width, ellipsis=True) for signal in signals],
        "caution": wrap_text(*find_caution(card, way_out), width, 6),
        "facts": wrap_text(describe_work(card), "$faint", width, 5),
    }


SHRINK_STEPS = (
    ShrinkStep("reason", 2),
    ShrinkStep("signals", 0),
    ShrinkStep("reason", 0),
    ShrinkStep("facts", 1),
    ShrinkStep("caution", 1),
    ShrinkStep("prompt", 1),
)
"""The steps, in the order in which they are taken until the card is low enough."""


def _shrink(parts: CardParts, width: int, height: int) -> None:
    """Shorten the parts until the whole card has at most `height` lines, where the steps allow that."""
    for name, min_lines in SHRINK_STEPS:
        other_lines = 2 + bool(parts["reason"]) + bool(parts["signals"])  # headline, sandbox warning, blank lines
        excess = other_lines + sum(map(len, parts.values())) - height
        if excess > 0:
            limit = max(min_lines, len(parts[name]) - excess)
            # Each signal is a line of its own, so that no ellipsis says that its text goes on.
            parts[name] = parts[name][:limit] if name == "signals" else limit_lines(parts[name], limit, width)
