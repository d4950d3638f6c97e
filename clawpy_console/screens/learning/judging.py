"""What the candidate screen does with a candidate: approve, reject, roll back, take back (SPEC 5.3, 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import words
from clawpy_console.keys import shown_key
from clawpy_console.screens.base import ConsoleScreen
from clawpy_console.screens.learning import candidate_lines as lines
from engine.values import Refusal
from engine.values.adaptation import CANDIDATE_MOVES, Candidate, CandidateMove, CandidateView

if TYPE_CHECKING:
    from engine import Engine

MOVES = {"approve": CandidateMove.APPROVE, "reject": CandidateMove.REJECT, "roll_back": CandidateMove.ROLL_BACK}
"""What each key does to a candidate; the engine's table says when it can."""


class Judging(ConsoleScreen):
    """Base of a screen with a candidate under the cursor. The last decision made here can be taken back."""

    _decided = ""
    """The candidate that was decided last, "" for none."""
    _given: Mapping[tuple[str, str], str] = {}
    """The reason that was given last, by candidate and decision: for when what was taken back is decided again."""
    _undoing = False
    """From `u` on until the candidate was read again: what can be done with it is not known."""

    @property
    def view(self) -> CandidateView | None:
        """The candidate under the cursor, None until it was read."""
        raise NotImplementedError

    def read_again(self) -> None:
        """Candidates changed: read them anew."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that can do nothing with this candidate are not offered."""
        if self._undoing and (action in MOVES or action == "undo"):
            return True  # they say that it runs
        if action in MOVES:
            view = self.view if self.ready else None
            return view is not None and (view.candidate.status, MOVES[action]) in CANDIDATE_MOVES
        if action == "undo":
            return bool(self._decided)
        return super().check_action(action, parameters)

    def action_approve(self) -> None:
        """Promote it, after a look at what that changes."""
        if (view := self.view) is not None:
            id = view.candidate.id
            self._ask(
                view, "approve", "Promote it?", "",
                lambda engine, _: engine.adaptation.approve(id),
                "Promoted: now active",
            )  # fmt: skip

    def action_reject(self) -> None:
        """Turn it down, with a reason."""
        if (view := self.view) is not None:
            id = view.candidate.id
            self._ask(
                view, "reject", "Reject it?", "Reason, in a few words (kept with it)",
                lambda engine, reason: engine.adaptation.reject(id, reason),
                "rejected",
            )  # fmt: skip

    def action_roll_back(self) -> None:
        """Take its effect out of force, with a reason."""
        if (view := self.view) is not None:
            id = view.candidate.id
            self._ask(
                view, "roll back", "Roll it back?", "Reason, in a few words (kept with it)",
                lambda engine, reason: engine.adaptation.roll_back(id, reason),
                "Rolled back: its changes are removed",
            )  # fmt: skip

    def action_undo(self) -> None:
        """Take the last decision back."""
        engine, decided = self.app.live(), self._decided
        if self._still_undoing() or engine is None or not decided:
            return

        def done(one: Candidate) -> None:
            self._decided = ""
            self._undoing = True
            self.app.say(f"Undone: {lines.STATUS[one.status][2]}, as before")
            self._renew()

        def refused(refusal: Refusal) -> None:
            self.now_read()
            self.app.say(str(refusal), "error")

        self._undoing = True
        self.refresh_bindings()
        self.app.ask(lambda: engine.adaptation.undo(decided), done, refused)

    def now_read(self) -> None:
        """What is shown of the candidate is what it is now."""
        self._undoing = False
        self.refresh_bindings()

    def _still_undoing(self) -> bool:
        """Whether a decision is being taken back; the key that asks is answered."""
        if self._undoing:
            self.app.say("Undo is still running. Try again in a moment.", "warning")
        return self._undoing

    def _ask(
        self, view: CandidateView, how: str, title: str, asks: str,
        act: Callable[[Engine, str], Candidate], said: str,
    ) -> None:  # fmt: skip
        """Show what it changes, then do it."""
        from clawpy_console.screens.learning.decide import Decide

        engine = self.app.live()
        if engine is None or self._still_undoing():
            return

        asked = (view.candidate.id, how)

        def answered(reason: str | None) -> None:
            if reason is not None:
                self._given = {**self._given, asked: reason}
                self.app.ask(lambda: act(engine, reason), done)

        def done(one: Candidate) -> None:
            self._decided = one.id
            self.app.say(f"{said}. Undo: {shown_key('candidates.undo', self.app.keymap)}")
            self._renew()

        name = words.crop(words.one_line(view.candidate.title), 60)

        def draw(width: int) -> list[Content]:
            return lines.changes_lines(view, how, width)

        self.app.push_screen(Decide(f"{title} {name}", draw, asks=asks, reason=self._given.get(asked, "")), answered)

    def _renew(self) -> None:
        self.app.renew(["changes"])
        self.read_again()
        self.refresh_bindings()
