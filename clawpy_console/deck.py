"""What the operator decides about cards: approve, dismiss, snooze, take back, ask for more (SPEC 9.2).

A decision shows at once; the engine is asked in a thread, one decision after the other. Until the engine has answered
and its cards were read again, the operator's word stands over what the engine listed before: a decided card does not
flicker back, a card that was taken back stays on top. A refusal goes back to who asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.values import Card, DismissReason, Refusal, SessionView

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp
    from clawpy_console.screens.mission.details import Details

Trail = Callable[[str, str], object]
"""`trail(text, style)`: says in one line what was done."""

_OPENING = Refusal("opening", "the engine is still starting", "a moment, then again")


class Deck:
    """The card verbs of one console, and which cards were decided here, so that the last can be taken back."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._decided: list[Card] = []
        self._words: dict[str, list[Card | None]] = {}  # a card's id -> each word not settled: None gone, Card on top
        self._in_turn = asyncio.Lock()
        self._details: Details | None = None
        self._unsaid = ""  # what stood in a prompt of one's own when it was left

    def over(self, listed: Sequence[Card]) -> tuple[Card, ...]:
        """`listed`, what the engine says is pending, with what the operator decided meanwhile."""
        last = {card_id: said[-1] for card_id, said in self._words.items()}
        back = [card for card in reversed(last.values()) if card is not None]
        return (*back, *(card for card in listed if card.id not in last))

    def decide(
        self, card: Card, how: str, refused: Callable[[Card, Refusal], object], told: Callable[[str], object]
    ) -> None:
        """Approve, dismiss or snooze `card`, which has left the stack already. `told` hears of what else follows: a
        kind of card that is switched off."""
        engine = self._app.engine
        if engine is None:
            refused(card, _OPENING)
            return
        verbs: dict[str, Callable[[], Card]] = {
            "approve": lambda: engine.cards.approve(card.id, without_sandbox=card.needs_confirmation),
            "dismiss": lambda: engine.cards.dismiss(card.id),
            "snooze": lambda: engine.cards.snooze(card.id),
        }
        self._decided.append(card)
        self._say(card.id, None)

        def no(refusal: Refusal) -> None:
            self._decided = [one for one in self._decided if one.id != card.id]
            self._words.pop(card.id, None)
            refused(card, refusal)
            self._app.renew(["cards"])

        self._ask(card.id, verbs[how], no, told=told if how == "dismiss" else None)

    def explain(self, card_id: str, reason: DismissReason, trail: Trail, undo: str) -> None:
        """Say why `card_id` was dismissed; after the dismissal itself, which may be under way. `undo` says how a kind
        that is switched off by it comes back."""
        engine = self._app.live()
        if engine is None:
            return
        said = reason.value.replace("-", " ")

        def done(card: Card) -> None:
            trail(
                f"noted: {said}" + (f"  ·  {card.note}{undo}" if card.note else ""), "$wants" if card.note else "$grey"
            )
            self._app.renew(["cards"])

        self._app.ask(
            lambda: engine.cards.explain(card_id, reason),
            done,
            lambda refusal: trail(f"✗ {refusal}", "$wrong"),
            in_turn=self._in_turn,
        )

    def approve_edited(
        self,
        card: Card,
        call: Callable[[], Card],
        approved: Callable[[], object],
        refused: Callable[[Refusal], object],
    ) -> None:
        """Approve `card` with `call`; it leaves the stack only when that went well."""

        def done(_: Card) -> None:
            self._decided.append(card)
            self._say(card.id, None)
            approved()
            self._app.renew(["cards"], before=lambda: self._settle(card.id))

        self._app.ask(call, done, refused, in_turn=self._in_turn)

    def take_back(self, show: Callable[[Card], object], leave: Callable[[Card], object], trail: Trail) -> None:
        """Undo the last decision made here; asking again goes one further back.

        `show` puts the card on top at once, `leave` takes it off again when the engine refuses.
        """
        engine = self._app.live()
        if engine is None:
            return
        if not self._decided:
            trail("Nothing to undo.", "$grey")
            return
        card = self._decided.pop()

        def no(refusal: Refusal) -> None:
            self._words.pop(card.id, None)
            leave(card)
            trail(f"✗ {refusal}", "$wrong")
            self._app.renew(["cards"])

        self._say(card.id, card)
        show(card)
        trail(f"↶ Undone: {words.one_line(card.assignment.prompt)}", "$grey")
        self._ask(card.id, lambda: engine.cards.undo(card.id), no, ("sessions", "changes", "tasks"))

    def _say(self, card_id: str, word: Card | None) -> None:
        said = self._words.pop(card_id, [])  # the newest word stands last
        self._words[card_id] = [*said, word]

    def _ask(
        self,
        card_id: str,
        call: Callable[[], Card],
        no: Callable[[Refusal], object],
        moved: Sequence[str] = (),
        told: Callable[[str], object] | None = None,
    ) -> None:
        def done(card: Card) -> None:
            if told is not None and card.note:
                told(card.note)
            self._app.renew(["cards", *moved], before=lambda: self._settle(card_id))

        self._app.ask(call, done, no, in_turn=self._in_turn)

    def _settle(self, card_id: str) -> None:
        """The oldest word on this card is in what the engine says now."""
        said = self._words.get(card_id, [])
        del said[:1]
        if not said:
            self._words.pop(card_id, None)

    def show_details(self, card: Card) -> None:
        """Open the details of `card`."""
        from clawpy_console.screens.mission.details import Details

        if self._details is None:
            self._details = Details(card)
            self._app.install_screen(self._details, "details")  # kept when it closes
        if self._details not in self._app.screen_stack:
            self._details.show(card)
            self._app.push_screen(self._details)

    def write_own_prompt(self, workspace: str, show: Callable[[Card], object] = lambda card: None) -> None:
        """Ask for a prompt and make a card of it; `show` puts it on top, its writer wants to decide on it now."""

        def made(card: Card) -> None:
            self._say(card.id, card)
            show(card)
            self._app.renew(["cards"], before=lambda: self._settle(card.id))

        from clawpy_console.dialogs.prompt import OwnPrompt

        if any(isinstance(screen, OwnPrompt) for screen in self._app.screen_stack):
            return  # its key was pressed twice before it was there

        def asked(place: str, text: str = "", refused: str = "") -> None:
            dialog = OwnPrompt(self._app.known.workspaces, place, text, refused)
            self._app.push_screen(dialog, lambda answer: written(answer, dialog.left))

        def written(answer: tuple[str, str] | None, left: str) -> None:
            self._unsaid = left
            if not answer:
                return
            text, place = answer
            engine = self._app.engine
            if engine is None:
                asked(place, text, str(_OPENING))
                return
            self._app.ask(
                lambda: engine.cards.propose(text, workspace=place),
                made,
                lambda refusal: asked(place, text, str(refusal)),  # what was typed is there again, to be mended
            )

        asked(workspace, self._unsaid)

    def continue_session(self, session: SessionView, text: str, made: Callable[[Card], object]) -> None:
        """Make a card of `text` that goes on with a finished session, and put it on top (SPEC 9.4)."""
        engine = self._app.live()
        if engine is None:
            return

        def put(card: Card) -> None:
            self._say(card.id, card)
            made(card)
            self._app.renew(["cards"], before=lambda: self._settle(card.id))

        self._app.ask(lambda: engine.cards.propose(text, workspace=session.workspace, continues=session.id), put)

    def predict(self, trail: Callable[[str, str], object]) -> None:
        """One prediction cycle now; `trail` is told what came of it."""
        engine = self._app.live()
        if engine is None:
            return

        def done(report: Any) -> None:
            wrong = f"  ·  {'; '.join(report.errors)}" if report.errors else ""
            made = f"{words.count(len(report.created), 'new card')}." if report.created else "Nothing new."
            trail(f"{made}{wrong}", "$wants" if wrong else "$grey")
            self._app.renew(["cards", "autonomy"])

        trail("Checking…", "$grey")
        self._app.ask(lambda: engine.predictions.run_cycle(requested=True), done, group="cycle")
