"""Lifting a hold, from any screen and the palette: what stops everything asks for a second key (SPEC 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawpy_console import words
from clawpy_console.dialogs.confirm import Confirm
from clawpy_console.screens.safety.lines import QUESTIONS

if TYPE_CHECKING:
    from clawpy_console.app import ConsoleApp


def lift(app: ConsoleApp, word: str) -> None:
    """Lift the hold `word`, after a second key of its own where it is one of `QUESTIONS`; nothing if it is none."""
    hold = next((one for one in app.holds if one.word == word), None)
    if hold is None:
        return
    if word not in QUESTIONS:
        app.resume(word)
        return
    title, meaning = QUESTIONS[word]
    question = f"Since {words.moment(hold.since, app.now())}: {words.one_line(hold.reason)}\n\n{meaning}"

    def answered(yes: bool | None) -> None:
        if yes:
            app.resume(word)

    app.push_screen(Confirm(title, question, key="L", word="resume"), answered)
