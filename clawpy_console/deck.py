"""What the operator decides about cards: approve, dismiss, snooze, take back, ask for more (SPEC 9.2).

Every decision is made in a thread; the stack has drawn it already, and a refusal goes back to who asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from clawpy_console import words
from engine.values import Card, Refusal

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


class Deck:
    """The card verbs of one console, and which cards were decided here, so that the last can be taken back."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._decided: list[str] = []

    def decide(
        self, card: Card, how: str, refused: Callable[[Card, Refusal], object], call: Callable[[], Card] | None = None
    ) -> None:
        """Approve, dismiss or snooze `card`; `call` replaces the plain verb (an edited approval)."""
        engine = self._app.engine
        if engine is None:
            refused(card, Refusal("opening", "the engine is still opening", "a moment, then again"))
            return
        verbs: dict[str, Callable[[], Card]] = {
            "approve": lambda: engine.cards.approve(card.id),
            "dismiss": lambda: engine.cards.dismiss(card.id),
            "snooze": lambda: engine.cards.snooze(card.id),
        }
        self._decided.append(card.id)

        def no(refusal: Refusal) -> None:
            if card.id in self._decided:
                self._decided.remove(card.id)
            refused(card, refusal)
            self._app.renew(["cards"])

        self._app.ask(call or verbs[how], lambda _: self._app.renew(["cards"]), no)

    def take_back(self, trail: Callable[[str, str], object]) -> None:
        """Undo the last decision made here; asking again goes one further back."""
        engine = self._app.live()
        if engine is None:
            return
        if not self._decided:
            trail("nothing to take back", "$grey")
            return
        card_id = self._decided.pop()

        def done(card: Card) -> None:
            trail(f"↶ taken back: {words.one_line(card.assignment.prompt)}", "$grey")
            self._app.renew(["cards", "sessions", "changes", "tasks"])

        def no(refusal: Refusal) -> None:
            trail(f"✗ {refusal}", "$wrong")

        self._app.ask(lambda: engine.cards.undo(card_id), done, no)

    def show_details(self, card: Card) -> None:
        """Open the details of `card`."""
        from clawpy_console.dialogs.details import Details

        self._app.push_screen(Details(card))

    def write_own_prompt(self, workspace: str) -> None:
        """Ask for a prompt and make a card of it."""
        from clawpy_console.dialogs.prompt import OwnPrompt

        def written(answer: tuple[str, str] | None) -> None:
            engine = self._app.live() if answer else None
            if answer and engine is not None:
                text, place = answer
                self._app.ask(lambda: engine.cards.propose(text, workspace=place), lambda _: self._app.renew(["cards"]))

        self._app.push_screen(OwnPrompt(self._app.known.workspaces, workspace), written)

    def predict(self, trail: Callable[[str, str], object]) -> None:
        """One prediction cycle now; `trail` is told what came of it."""
        engine = self._app.live()
        if engine is None:
            return

        def done(report: Any) -> None:
            wrong = f"  ·  {'; '.join(report.errors)}" if report.errors else ""
            made = words.count(len(report.created), "new card") if report.created else "nothing new"
            trail(f"looked for {report.seconds:.1f} s: {made}{wrong}", "$wants" if wrong else "$grey")
            self._app.renew(["cards", "autonomy"])

        trail("looking …", "$grey")
        self._app.ask(lambda: engine.predictions.run_cycle(requested=True), done, group="cycle")
