"""Decisions about cards: approve, dismiss, snooze, undo, check for new ones (SPEC 9.2).

A decision shows at once; the engine is called in a thread, one decision after the other. Until the engine has answered
and its cards were read again, the decision overrides what the engine listed before: a decided card does not come back
for a moment, a card whose decision was undone stays in sight. A refusal is handed to the caller.

Mission control, the work screen, the palette and the prompt box decide cards by the one `CardController` of their app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TypeVar

from clawpy_console import formats
from clawpy_console.console import Console, EngineCall, OnRefusal, OnResult
from clawpy_console.fields import WORDS
from clawpy_console.formats import crop, one_line
from engine.model import Card, CheckReport, DismissReason, Refusal, SessionView

T = TypeVar("T")

SNOOZE = timedelta(hours=2)
"""The time for which a card is snoozed (SPEC 2.9)."""

DECIDED_ELSEWHERE = WORDS["elsewhere"]
"""What became of a card that another console or a verb decided first, or nobody in time."""

CANNOT_BE_UNDONE = frozenset({"unknown_card", "nothing_to_undo"})
"""Codes of refusals after which a decision never can be undone."""

MAX_TITLE_CELLS = 36
"""Maximum number of cells of a card's prompt in a message."""

ShowMessage = Callable[[str, str], object]
"""`show_message(text, style)`: shows in one line what was done."""


class CardDecision(StrEnum):
    """What the operator decides about a card."""

    APPROVE = "approve"
    DISMISS = "dismiss"
    SNOOZE = "snooze"


class PendingOverrides:
    """The changes of pending cards that the engine may not list yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, list[Card | None]] = {}  # the oldest first; None: the card is gone

    def apply(self, listed: Sequence[Card]) -> tuple[Card, ...]:
        """The pending cards: those that the engine `listed`, with the newest change of each."""
        newest = {card_id: changes[-1] for card_id, changes in self._by_id.items()}
        back = [card for card in reversed(newest.values()) if card is not None]
        return (*back, *(card for card in listed if card.id not in newest))

    def add(self, card_id: str, change: Card | None) -> None:
        """Note a change; None says that the card is gone."""
        earlier = self._by_id.pop(card_id, [])
        self._by_id[card_id] = [*earlier, change]  # the newest change is last, of the card and of all

    def drop_oldest(self, card_id: str) -> None:
        """The engine lists the oldest change of this card now."""
        changes = self._by_id.get(card_id, [])
        del changes[:1]
        if not changes:
            self.drop(card_id)

    def drop(self, card_id: str) -> None:
        """The engine refused the changes of this card."""
        self._by_id.pop(card_id, None)


class CardController:
    """Decides cards for one console. It remembers the cards that were decided here, so that decisions can be undone."""

    def __init__(self, app: Console) -> None:
        self.last_approved_id = ""
        """The card that was approved here last, "" for none or once the work screen has opened on its session."""
        self._app = app
        self._decided: list[tuple[Card, CardDecision]] = []
        self._undoes_approval = False  # until the engine says how many landings are left
        self._overrides = PendingOverrides()
        self._lock = asyncio.Lock()

    def pending(self, listed: Sequence[Card]) -> tuple[Card, ...]:
        """The cards that the engine `listed` as pending, changed by the decisions that were made since."""
        return self._overrides.apply(listed)

    def decide(
        self,
        card: Card,
        decision: CardDecision,
        refuse: Callable[[Card, Refusal], object],
        notify: Callable[[str], object],
        undo: str = "",
    ) -> None:
        """Approve, dismiss or snooze `card`, which is off the screen already.

        `refuse` is called with a refusal, after which the card is pending again. `notify` is called with what else
        follows: a kind of card that is switched off, with `undo`, which says how it comes back; or what became of a
        card that was decided elsewhere.
        """
        self._decided.append((card, decision))
        self._overrides.add(card.id, None)
        if decision is CardDecision.APPROVE:
            self.last_approved_id = card.id

        def on_refusal(refusal: Refusal) -> None:
            self._forget_approval(card)
            self._decided = [decided for decided in self._decided if decided[0].id != card.id]
            self._overrides.drop(card.id)
            if refusal.code == "already_decided":
                self._app.call_engine(lambda engine: engine.cards.get(card.id), report_other_decision)
            else:
                refuse(card, refusal)
            self._app.reload(["cards", "sessions"])

        def report_other_decision(decided: Card) -> None:
            outcome = DECIDED_ELSEWHERE.get(decided.status, "was decided elsewhere")
            notify(f"“{crop(one_line(card.assignment.prompt), MAX_TITLE_CELLS)}” {outcome}.")

        def on_result(decided: Card) -> None:
            has_news = bool(decided.note) and decided.note != card.note
            if decision is CardDecision.DISMISS and has_news:
                notify(f"{decided.note}{undo}")

        self._send_decision(card.id, _make_call(card, decision), on_result, on_refusal)

    def _forget_approval(self, card: Card) -> None:
        """The approval of `card` does not hold."""
        if self.last_approved_id == card.id:
            self.last_approved_id = ""

    def record_reason(self, card_id: str, reason: DismissReason, show_message: ShowMessage, undo: str) -> None:
        """Record why `card_id` was dismissed, after the dismissal itself. The message ends with `undo`, which says how
        the card and its kind come back."""
        label = reason.value.replace("-", " ")

        def on_explained(card: Card) -> None:
            note = f"  ·  {card.note}" if card.note else ""
            show_message(f"Noted: {label}{note}{undo}", "$wants" if card.note else "$grey")
            self._app.reload(["cards"])

        self._app.call_engine(
            lambda engine: engine.cards.explain(card_id, reason),
            on_explained,
            lambda refusal: show_message(f"✗ {refusal}", "$wrong"),
            lock=self._lock,
        )

    def approve_edited(
        self, card: Card, call: EngineCall[Card], on_approved: Callable[[], object], on_refusal: OnRefusal
    ) -> None:
        """Approve `card` with `call`; it leaves the list only when that went well."""

        def on_done(_: Card) -> None:
            self._decided.append((card, CardDecision.APPROVE))
            self.last_approved_id = card.id
            on_approved()
            self._override_until_read(card.id, None)

        self._app.call_engine(call, on_done, on_refusal, lock=self._lock)

    def undo(self, show: Callable[[Card], object], show_message: ShowMessage, hint: str) -> None:
        """Undo the last decision made here; the next call undoes the one before. `show` shows the card at once.

        Of a card with several landings each call undoes one; the message then contains `hint`, which says how to
        undo the next. While the undo of an approval runs, it is not known which decision is the last: then the call
        only says so. After a refusal the decision is again the one to undo, unless nothing ever can undo it.
        """
        if self._undoes_approval:
            self._app.show_toast("Undo is still running. Try again in a moment.", "warning")
            return
        if not self._decided:
            show_message("Nothing to undo.", "$grey")
            return
        card, decision = self._decided.pop()
        self._forget_approval(card)
        if decision is CardDecision.APPROVE:
            self._undoes_approval = True

        def on_end(*, can_be_undone: bool) -> None:
            if can_be_undone:
                self._decided.append((card, decision))
            if decision is CardDecision.APPROVE:
                self._undoes_approval = False

        def on_result(result: tuple[Card, int]) -> None:
            undone, landings_left = result
            if landings_left:
                show_message(f"↶ {undone.note}{hint}  ·  {one_line(card.assignment.prompt)}", "$grey")
            on_end(can_be_undone=landings_left > 0)

        def on_refusal(refusal: Refusal) -> None:
            self._overrides.drop(card.id)
            self._app.on_state_changed(frozenset({"cards"}))  # the card leaves again
            show_message(f"✗ {refusal}", "$wrong")
            self._app.reload(["cards"])
            on_end(can_be_undone=refusal.code not in CANNOT_BE_UNDONE)

        self._overrides.add(card.id, card)
        show(card)
        show_message(f"↶ Undone: {one_line(card.assignment.prompt)}", "$grey")
        topics = ("sessions", "changes", "tasks")
        self._send_decision(card.id, lambda engine: engine.cards.undo(card.id), on_result, on_refusal, topics)

    def _send_decision(
        self,
        card_id: str,
        call: EngineCall[T],
        on_result: OnResult[T],
        on_refusal: OnRefusal,
        topics: Sequence[str] = (),
    ) -> None:
        """Call the engine with a decision that is shown already; then read the cards and `topics` again."""

        def on_done(result: T) -> None:
            on_result(result)
            self._reload_cards(card_id, *topics)

        self._app.call_engine(call, on_done, on_refusal, lock=self._lock)

    def _override_until_read(self, card_id: str, change: Card | None) -> None:
        """The engine has made this change; its list is read again."""
        self._overrides.add(card_id, change)
        self._reload_cards(card_id)

    def _reload_cards(self, card_id: str, *topics: str) -> None:
        """Read the cards, which then have the oldest change of `card_id`, and `topics` again."""
        self._app.reload(["cards", *topics], before=lambda: self._overrides.drop_oldest(card_id))

    def handle_prompt_card(
        self, card: Card, show: Callable[[Card], object] | None, start: Callable[[Card], object] | None
    ) -> None:
        """Take the card of a prompt that the operator wrote.

        If the prompt names a flow, the card is passed to `start` and runs at once, because writing it is approving it.
        A card that is risky, needs the network or cannot run yet is passed to `show`. Without these two functions, the
        app starts the card or shows it on mission control.
        """
        self._override_until_read(card.id, card)
        needs_decision = card.consent_text or card.note or card.approval_risk or card.blocking_verdict
        if card.assignment.flow and not needs_decision:
            (start or self._start)(card)
        else:
            (show or partial(self._app.open, "mission"))(card)

    def _start(self, card: Card) -> None:
        def refuse(card: Card, refusal: Refusal) -> None:
            self._app.show_toast(refusal, "warning")
            self._app.open("mission", card)

        self._app.show_toast(f"Started: {one_line(card.assignment.prompt)}")
        self.decide(card, CardDecision.APPROVE, refuse, self._app.show_toast)

    def continue_session(
        self, session: SessionView, text: str, on_card: Callable[[Card], object], on_refusal: OnRefusal
    ) -> None:
        """Make a card of `text` that goes on with a finished session, and put it on top (SPEC 9.4)."""

        def add_card(card: Card) -> None:
            on_card(card)
            self._override_until_read(card.id, card)

        self._app.call_engine(
            lambda engine: engine.cards.propose(text, workspace=session.workspace, continues=session.id),
            add_card,
            on_refusal,
        )

    def predict(self, show_message: ShowMessage) -> None:
        """Run one prediction cycle now; `show_message` gets its result in words."""

        listed = {card.about for card in self.pending(self._app.state.cards)}

        def on_report(report: CheckReport) -> None:
            # A card whose facts changed was replaced: that is no new card for the operator.
            shown = (card for card in report.created if self._app.shows(card.assignment.workspace))
            number = sum(card.about not in listed for card in shown)
            errors = f"  ·  {'; '.join(report.errors)}" if report.errors else ""
            result = f"{formats.count(number, 'new card')}." if number else "Nothing new."
            show_message(f"{result}{errors}", "$wants" if errors else "$grey")
            self._app.reload(["cards", "autonomy"])

        show_message("Checking…", "$accent")
        self._app.call_engine(lambda engine: engine.checks.run(requested=True), on_report, group="cycle")


def _make_call(card: Card, decision: CardDecision) -> EngineCall[Card]:
    """The call of the engine for a decision."""
    calls: dict[CardDecision, EngineCall[Card]] = {
        CardDecision.APPROVE: lambda engine: engine.cards.approve(card.id, without_sandbox=card.needs_confirmation),
        CardDecision.DISMISS: lambda engine: engine.cards.dismiss(card.id),
        CardDecision.SNOOZE: lambda engine: engine.cards.snooze(card.id, span=SNOOZE),
    }
    return calls[decision]


class CardConsole(Console):
    """A console whose cards can be decided."""

    cards: CardController
