"""The lines above the stack at the start: what happened while the operator was away, or the hints of a first run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content

from clawpy_console import channel_choice, formats
from clawpy_console.fields.states import absence_fields
from clawpy_console.keys import shown_key
from clawpy_console.widgets.reflowing_text import render_fields
from engine import document

if TYPE_CHECKING:
    from engine import Engine

MAX_WIDTH = 200
"""Maximum number of cells of a line about what happened."""


def first_run_lines(engine: Engine, keymap: Mapping[str, str]) -> list[Content]:
    """The hints of a first run: which keys do what, and the optional steps. Each fits 75 cells while no agent is found.

    Blocking: call it in a thread.
    """

    def key(action: str) -> tuple[str, str]:
        return (shown_key(action, keymap), "$accent")

    return [
        Content.assemble(
            ("Each card is useful work: ", "bold $ink"), key("stack.approve"), " runs it, ",
            key("stack.dismiss"), " dismisses it, ", key("stack.snooze"), " snoozes it",
        ),
        Content.assemble(
            "Changes wait as a diff: ", key("app.work"), " shows them, ",
            key("work.land"), " lands them, ", key("work.undo"), " undoes that",
        ),
        Content.assemble(
            key("mission.own"), " writes your own prompt; ",
            channel_choice.hint(channel_choice.read_options(engine), shown_key("app.hire", keymap)),
        ),
        Content.assemble("--workspace DIR adds folders · nothing runs by itself · ", ("esc", "$accent"), " hides this"),
    ]  # fmt: skip


def absence_lines(engine: Engine, at: datetime, now: datetime) -> list[Content]:
    """The work since `at`; no lines when nothing happened. Blocking: call it in a thread."""
    if not (lines := render_fields(absence_fields(document(engine.since(at))), MAX_WIDTH)):
        return []
    return [Content.styled(f"While you were away, {formats.age(now - at)}", "bold $accent"), *lines]
